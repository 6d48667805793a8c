"""What a registered model is: options, and how to build the module for a data set."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from widthwise.core.errors import ConfigError
from widthwise.core.seeds import SeedTree
from widthwise.tasks.dataset import Kind, Signature

Norm = Literal["group", "batch", "none"]

CHANNELS_PER_GROUP = 8


class Model(BaseModel):
    """A model's options; its fields are what a user may write beside the model's name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: ClassVar[tuple[Kind, ...]] = ("image", "text", "features")
    freeze: ClassVar[tuple[str, ...]] = ()  # modules whose output channels stay whole at every width

    @abstractmethod
    def module(self, signature: Signature) -> nn.Module:
        """Return the module for such data; its parameters come from torch's global generator."""


@dataclass(frozen=True)
class ModelSpec:
    """A model for one data set: a value that can be sent, and built at the other end.

    Attributes:
        name: Registered name.
        options: The model's options.
        signature: The data that it must fit.
    """

    name: str
    options: Model
    signature: Signature

    @property
    def freeze(self) -> tuple[str, ...]:
        """Names of modules whose output channels are never cut."""
        return self.options.freeze

    def build(self, seed: int) -> nn.Module:
        """Return the module, initialised by torch's own rules from ``SeedTree(seed).at("model")``.

        The global generator is left as it was.

        Raises:
            ConfigError: if torch cannot make a module of these options, for example one that is too large.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SeedTree(seed).at("model").seed())
            try:
                return self.options.module(self.signature)
            except (RuntimeError, OverflowError, TypeError, MemoryError) as error:
                raise ConfigError(
                    f"model is {self.name!r} with {self.options!r}, but torch cannot build it "
                    f"({str(error).splitlines()[0]}). Choose smaller options."
                ) from error

    def example_inputs(self, batch: int = 2) -> Tensor:
        """Return inputs in the shape and type of a batch (see ``Signature.example_inputs``)."""
        return self.signature.example_inputs(batch)


def scaled(channels: int, scale: float) -> int:
    """Return a channel count times ``scale``, rounded to a whole number of at least 1."""
    return max(1, round(channels * scale))


def norm_layer(norm: Norm, channels: int) -> nn.Module:
    """Return a normalisation layer over ``channels`` channels, with weight and bias.

    ``group`` has 8 channels to a group, so that a nested sub-model keeps whole groups and their statistics.

    Raises:
        ConfigError: if groups of 8 do not divide the channels.
    """
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "group":
        groups, rest = divmod(channels, CHANNELS_PER_GROUP)
        if rest:
            raise ConfigError(
                f"scale gives a layer of {channels} channels, but norm 'group' needs a multiple of "
                f"{CHANNELS_PER_GROUP}. Choose another scale or norm."
            )
        return nn.GroupNorm(groups, channels)
    return nn.Identity()
