"""What an exported file says of itself: enough to build its module again without the run or its data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from widthwise.core.outputs import logits_of
from widthwise.core.records import SliceSpec, ascending
from widthwise.tasks import Signature

#: Where a file holds its passport, as JSON: a key of its metadata.
KEY = "widthwise"
FORMAT = 1


class Passport(BaseModel):
    """Where an exported sub-model comes from and how its module is built.

    Attributes:
        format: Of this record.
        version: Of widthwise, when it was written.
        method: Name of the run's method.
        seed: Root seed of the run.
        config_hash: Identity of what the run computed.
        rounds: Rounds after which the parameters were saved.
        dataset: Name of the run's data set.
        model: Name of its model.
        options: The model's options.
        signature: Kind, shape and number of classes of the data.
        tracing: Keyword arguments of ``trace``.
        width: Of the sub-model.
        kept: Channel group -> the stretches [first, last + 1) of channels that are kept.
        masked: Whether the file holds the full model with zeros.
        scores: The sub-model's class scores for ``probe(signature)``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT
    version: str
    method: str
    seed: int
    config_hash: str
    rounds: int
    dataset: str
    model: str
    options: dict[str, Any]
    signature: Signature
    tracing: dict[str, Any]
    width: float
    kept: dict[str, tuple[tuple[int, int], ...]]
    masked: bool
    scores: tuple[tuple[float, ...], ...]

    @property
    def spec(self) -> SliceSpec:
        """The channels that the sub-model keeps."""
        kept = {
            group: ascending(chain.from_iterable(range(*stretch) for stretch in stretches))
            for group, stretches in self.kept.items()
        }
        return SliceSpec(self.width, kept)


class Scores(nn.Module):
    """A sub-model as a function from inputs [B, ...] to class scores [B, classes], wherever it has them.

    Attributes:
        model: The sub-model, under the parameter names of the model that was trained.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the class scores."""
        return logits_of(self.model(inputs))


def stretches(channels: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return ascending channels as the stretches that they make up.

    Example:
        >>> stretches([0, 1, 2, 5, 7, 8])
        ((0, 3), (5, 6), (7, 9))
    """
    found: list[tuple[int, int]] = []
    for channel in channels:
        if found and found[-1][1] == channel:
            found[-1] = (found[-1][0], channel + 1)
        else:
            found.append((channel, channel + 1))
    return tuple(found)


def probe(signature: Signature) -> Tensor:
    """Return two inputs by which a module that is built again is recognised: tokens by turns, or a ramp."""
    inputs = signature.example_inputs(2)
    if not inputs.is_floating_point():
        return inputs
    return torch.linspace(-1, 1, inputs.numel()).view(inputs.shape)


@torch.no_grad()
def probed(module: Scores, signature: Signature) -> Tensor:
    """Return the scores [2, classes] of the probe."""
    scores: Tensor = module(probe(signature))
    return scores
