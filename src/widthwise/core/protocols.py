"""What rooms may assume about objects of rooms that they do not import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from widthwise.core.params import Params
from widthwise.core.records import SliceSpec

Criterion = Callable[[Tensor, Tensor], Tensor]
"""(outputs [B, ...], targets [B]) -> mean loss over the batch, a scalar tensor."""

ModuleFor = Callable[[SliceSpec], nn.Module]
"""A spec -> a dense module of that spec, whose parameters the caller overwrites."""

StackedForward = Callable[[Mapping[str, Tensor], Tensor], Tensor]
"""(parameters [K, ...] by name, inputs [K, B, ...]) -> class scores [K, B, classes] of K modules."""


class Space(Protocol):
    """The part of ``slicing.WidthSpace`` that the other rooms use."""

    @property
    def output_parameters(self) -> tuple[str, ...]:
        """Names of the parameters whose output axis is the model's output."""

    @property
    def linear_weights(self) -> frozenset[str]:
        """Names of the parameters that training reads once, as the weight of a linear layer."""

    def nested(self, width: float) -> SliceSpec:
        """Return the spec that keeps the leading channels."""

    def shapes(self, spec: SliceSpec) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every parameter of a slice."""

    def mask(self, spec: SliceSpec) -> Mapping[str, Tensor]:
        """Return which coordinates of each parameter a slice keeps."""

    def take(self, tensors: Mapping[str, Tensor], spec: SliceSpec) -> Params:
        """Slice tensors in global shapes."""

    def take_within(self, tensors: Mapping[str, Tensor], outer: SliceSpec, spec: SliceSpec) -> Params:
        """Slice tensors in the shapes of ``outer``, which contains ``spec``."""

    def scatter_add_(
        self, into: Params, values: Mapping[str, Tensor], spec: SliceSpec, scale: float = 1.0
    ) -> None:
        """Add ``scale * values`` to the kept coordinates of tensors in global shapes."""

    def macs(self, spec: SliceSpec) -> int:
        """Return the multiply-accumulates of a forward pass, per sample."""

    def module(self, spec: SliceSpec) -> nn.Module:
        """Return a fresh dense module of ``spec`` with uninitialised parameters."""

    def stacked(self, module: nn.Module) -> StackedForward:
        """Return the forward, in training mode, of several modules of the shapes of one."""


class Samples(Protocol):
    """Labelled samples that are read by index (``tasks.Dataset``)."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return inputs [B, ...] and targets [B]; a generator allows augmentation."""
