"""The leading channels."""

from __future__ import annotations

from collections.abc import Callable

from widthwise.core.records import SliceSpec
from widthwise.slicing.space import WidthSpace

Selector = Callable[[WidthSpace, float, int, int], SliceSpec]


def nested(space: WidthSpace, width: float, client_id: int, round_index: int) -> SliceSpec:
    """Keep the leading ceil(width * C) channels of each group, for every client and round alike."""
    return space.nested(width)
