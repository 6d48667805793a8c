"""Which positions of an axis belong to which channels: the algebra of layouts on many kept sets at once.

Shapes: T kept sets, C channels of a group, n positions of an axis.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from widthwise.slicing.layout import Layout, groups_of
from widthwise.slicing.space import ParamLayout


def along(layout: Layout, kept: Mapping[str, Tensor]) -> Tensor:
    """Return [T, n] which positions of an axis each of T kept sets holds.

    Args:
        layout: The axis.
        kept: Group -> [T, C] bool, which channels each set keeps; every group of the axis, at least one.

    Example:
        >>> along((2, "h"), {"h": torch.tensor([[True, False, False]])}).int().tolist()
        [[1, 0, 0, 1, 0, 0]]
    """
    count = next(iter(kept.values())).shape[0]
    positions = torch.ones(count, 1, dtype=torch.bool)
    for factor in layout:
        if isinstance(factor, int):
            inner = torch.ones(count, factor, dtype=torch.bool)
        elif isinstance(factor, str):
            inner = kept[factor]
        else:
            inner = torch.cat([along(part, kept) for part in factor.layouts], dim=1)
        positions = (positions[:, :, None] & inner[:, None, :]).reshape(count, -1)
    return positions


def union(layout: ParamLayout, kept: Mapping[str, Tensor]) -> Tensor:
    """Return which coordinates of a parameter at least one of T kept sets holds (bool, its global shape).

    A set holds a coordinate if it holds its position on every axis: a product over the axes. The sum of these
    over the sets is a matrix product.

    Args:
        layout: The parameter, cut by at least one group.
        kept: Group -> [T, C] bool, for every group of the parameter.
    """
    *others, last = [along(axis, kept).float() for axis in layout.axes if groups_of(axis)]
    held = torch.ones(len(last), 1)
    for axis in others:
        held = (held[:, :, None] * axis[:, None, :]).reshape(len(last), -1)
    shape = [n if groups_of(axis) else 1 for n, axis in zip(layout.shape, layout.axes, strict=True)]
    return (held.T @ last > 0).reshape(shape).expand(layout.shape)


def of_channels(layout: Layout, group: str, sizes: Mapping[str, int]) -> Tensor:
    """Return [C, n] which positions of an axis are lost without a channel: where any factor is that channel.

    A group may stand twice on an axis (an outer product of a layer with itself, flattened): position (i, j)
    then belongs to channel i and to channel j, and the magnitudes on it count for both.

    Args:
        layout: An axis that the group cuts.
        group: The group.
        sizes: Channels of every group of the axis.

    Example:
        >>> of_channels((2, "h"), "h", {"h": 2}).int().tolist()
        [[1, 0, 1, 0], [0, 1, 0, 1]]
        >>> of_channels(("h", "h"), "h", {"h": 2}).int().tolist()
        [[1, 1, 1, 0], [0, 1, 1, 1]]
    """
    count = sizes[group]
    everything = {name: torch.ones(count, sizes[name], dtype=torch.bool) for name in groups_of(layout)}
    return ~along(layout, {**everything, group: ~torch.eye(count, dtype=torch.bool)})
