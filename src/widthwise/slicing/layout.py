"""Layouts: what is left of an axis once the labels are settled. Plain data, picklable and hashable.

A layout is a row-major product of factors, outer first: an ``int`` is a size that is never cut, a ``str``
names a channel group, and ``Parts`` is a concatenation of layouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Parts:
    """A concatenation of axes."""

    layouts: tuple[Layout, ...]


Factor = int | str | Parts
Layout = tuple[Factor, ...]


def factor_size(factor: Factor, counts: Mapping[str, int]) -> int:
    """Return a factor's size where each group has so many channels."""
    match factor:
        case int():
            return factor
        case str():
            return counts[factor]
        case Parts(layouts):
            return sum(size(layout, counts) for layout in layouts)


def size(layout: Layout, counts: Mapping[str, int]) -> int:
    """Return an axis' size where each group has so many channels.

    Example:
        >>> size((4, "lstm"), {"lstm": 128})
        512
    """
    return prod(factor_size(factor, counts) for factor in layout)


def factor_kept(
    factor: Factor, counts: Mapping[str, int], kept: Mapping[str, Sequence[int]]
) -> Sequence[int] | None:
    """Return the kept positions of a factor, or None if all of them are."""
    match factor:
        case int():
            return None
        case str():
            chosen = kept[factor]
            return None if len(chosen) == counts[factor] else chosen
        case Parts(layouts):
            positions: list[int] = []
            offset = 0
            for layout in layouts:
                positions.extend(offset + i for i in kept_positions(layout, counts, kept))
                offset += size(layout, counts)
            return None if len(positions) == offset else positions


def kept_positions(
    layout: Layout, counts: Mapping[str, int], kept: Mapping[str, Sequence[int]]
) -> Sequence[int]:
    """Return the kept positions of an axis in ascending order.

    Example:
        >>> kept_positions((2, "h"), {"h": 3}, {"h": range(2)})
        [0, 1, 3, 4]
    """
    positions: Sequence[int] = [0]
    for factor in layout:
        width = factor_size(factor, counts)
        chosen = factor_kept(factor, counts, kept)
        inner = range(width) if chosen is None else chosen
        positions = [outer * width + i for outer in positions for i in inner]
    return positions


def groups_of(layout: Layout) -> set[str]:
    """Return the names of the channel groups on an axis."""
    found: set[str] = set()
    for factor in layout:
        if isinstance(factor, str):
            found.add(factor)
        elif isinstance(factor, Parts):
            found.update(*(groups_of(part) for part in factor.layouts))
    return found
