"""How to cut one tensor: a view in its factors, one selection for each factor that is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from widthwise.slicing.ir import Shape
from widthwise.slicing.layout import Layout, factor_kept, factor_size


@dataclass(frozen=True)
class Cut:
    """Which coordinates of a tensor are kept.

    Attributes:
        shape: Shape of the whole tensor.
        kept: Shape of what is kept.
        factors: Shape of the whole tensor, its axes broken up into factors.
        ranges: (dimension, start, length) of the factors of which one stretch is kept.
        chosen: (dimension, positions) of the other factors that are cut.
    """

    shape: Shape
    kept: Shape
    factors: Shape
    ranges: tuple[tuple[int, int, int], ...]
    chosen: tuple[tuple[int, Tensor], ...]

    @property
    def whole(self) -> bool:
        """Whether nothing is cut."""
        return not self.ranges and not self.chosen

    def take(self, tensor: Tensor) -> Tensor:
        """Return the kept coordinates: a view wherever stretches of plain axes are kept."""
        if self.whole:
            return tensor
        part = self._stretch(tensor)
        for dim, positions in self.chosen:
            part = part.index_select(dim, positions.to(part.device, non_blocking=True))
        return part.reshape(self.kept)

    def add_(self, into: Tensor, values: Tensor, scale: float) -> None:
        """Add scaled values to the kept coordinates of a contiguous tensor, in place."""
        if self.whole:
            into.add_(values, alpha=scale)
            return
        part = self._stretch(into)
        shape = list(part.shape)
        for dim, positions in self.chosen:
            shape[dim] = len(positions)
        values = values.reshape(shape)
        if not self.chosen:
            part.add_(values, alpha=scale)
        elif len(self.chosen) == 1:
            ((dim, positions),) = self.chosen
            part.index_add_(dim, positions.to(part.device), values.to(part.dtype), alpha=scale)
        else:
            where: list[Tensor] = [torch.arange(n, device=part.device) for n in part.shape]
            for dim, positions in self.chosen:
                where[dim] = positions.to(part.device)
            grid = torch.meshgrid(where, indexing="ij")
            part[grid] += scale * values.to(part.dtype)

    def _stretch(self, tensor: Tensor) -> Tensor:
        part = tensor if self.factors == self.shape else tensor.view(self.factors)
        for dim, start, length in self.ranges:
            part = part.narrow(dim, start, length)
        return part


def cut(layouts: Sequence[Layout], counts: Mapping[str, int], kept: Mapping[str, Sequence[int]]) -> Cut:
    """Return the cut of a tensor with these axes, whose groups have ``counts`` channels, down to ``kept``."""
    factors: list[int] = []
    shape: list[int] = []
    kept_shape: list[int] = []
    ranges: list[tuple[int, int, int]] = []
    chosen: list[tuple[int, Tensor]] = []
    for layout in layouts:
        sizes = [factor_size(factor, counts) for factor in layout] or [1]
        left = list(sizes)
        for offset, factor in enumerate(layout):
            positions = factor_kept(factor, counts, kept)
            if positions is None:
                continue
            dim = len(factors) + offset
            left[offset] = len(positions)
            if positions[-1] - positions[0] + 1 == len(positions):
                ranges.append((dim, positions[0], len(positions)))
            else:
                chosen.append((dim, torch.tensor(list(positions))))
        factors += sizes
        shape.append(prod(sizes))
        kept_shape.append(prod(left))
    return Cut(tuple(shape), tuple(kept_shape), tuple(factors), tuple(ranges), tuple(chosen))
