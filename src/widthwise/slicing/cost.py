"""What a width costs: parameters, multiply-accumulates and bytes to upload."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn

from widthwise.slicing.tracing import trace


@dataclass(frozen=True)
class Cost:
    """The cost of one width.

    Attributes:
        width: The width.
        params: Number of parameters.
        macs: Multiply-accumulates of one sample's forward pass (see ``WidthSpace.macs``).
        upload_bytes: Bytes of the parameters, 4 each, or what a compression makes of them.
    """

    width: float
    params: int
    macs: int
    upload_bytes: int


def cost(
    model: nn.Module,
    example_inputs: torch.Tensor | tuple[torch.Tensor, ...],
    widths: Iterable[float],
    freeze: Iterable[str] = (),
    num_bytes: Callable[[int], int] | None = None,
) -> list[Cost]:
    """Return the cost of the nested sub-model of each width.

    Source: the columns of Table 1 of Moayedikia and Troncoso Lora 2026.

    Args:
        model: The model.
        example_inputs: Its inputs, batch first.
        widths: The widths.
        freeze: Modules or channel groups that stay whole.
        num_bytes: The bytes of so many values on their way up (``Compression.num_bytes``); 4 each by default.

    Raises:
        TraceError: if the model cannot be traced.
        SliceError: if a width is not in (0, 1].

    Example:
        >>> cost(nn.Linear(8, 2), torch.zeros(2, 8), [1.0])
        [Cost(width=1.0, params=18, macs=16, upload_bytes=72)]
    """
    space = trace(model, example_inputs, freeze)
    specs = [space.nested(width) for width in widths]
    return [
        Cost(
            spec.width,
            space.num_params(spec),
            space.macs(spec),
            num_bytes(space.num_params(spec)) if num_bytes else space.upload_bytes(spec),
        )
        for spec in specs
    ]
