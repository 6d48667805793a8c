"""Which widths are tried: all that are named, or a bisection over those at which a slice changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar


class Trial(Protocol):
    """What is known of a width that was tried."""

    @property
    def fits(self) -> bool:
        """Whether it fits."""


T = TypeVar("T", bound=Trial)

RESOLUTION = 1 / 64
"""Widths that are searched lie at least so far apart: a step at full width costs about 3 % more than one
at 63/64, and two measurements of one width differ by as much."""


def spaced(levels: Iterable[float], apart: float = RESOLUTION) -> list[float]:
    """Return widths at least ``apart`` from each other, ascending: from the largest down, and the smallest.

    Example:
        >>> spaced([0.1, 0.2, 0.25, 0.5, 1.0], apart=0.2)
        [0.1, 0.25, 0.5, 1.0]
    """
    ordered = sorted(set(levels), reverse=True)
    kept = ordered[:1]
    for level in ordered[1:]:
        if kept[-1] - level >= apart or level == ordered[-1]:
            kept.append(level)
    return kept[::-1]


def search(widths: Sequence[float], measure: Callable[[float], T]) -> list[T]:
    """Try as few widths as decide which is the largest that fits, and return what was found, ascending.

    The smallest comes first, then the largest, then halves of what is between. That is the largest of all, if
    a width fits wherever a larger one does. Whatever the measurements say, the largest of those that
    fit is followed by one that was tried and does not fit, or is the last.

    Args:
        widths: Widths in ascending order, at least one.
        measure: Tries a width.
    """
    tried: dict[int, T] = {}

    def fits(place: int) -> bool:
        if place not in tried:
            tried[place] = measure(widths[place])
        return tried[place].fits

    low, high = 0, len(widths) - 1
    if fits(low) and not fits(high):
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
    return [tried[place] for place in sorted(tried)]
