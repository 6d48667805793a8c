"""What of a slice travels, where a mask leaves some of its coordinates out."""

from __future__ import annotations

import math

from widthwise.core.records import SliceSpec
from widthwise.slicing.space import WidthSpace


def num_values(space: WidthSpace, spec: SliceSpec) -> int:
    """Return the number of parameters that a client of this spec trains and returns."""
    left_out = sum(mask.numel() - int(mask.sum()) for mask in spec.mask.kept.values()) if spec.mask else 0
    return space.num_params(spec) - left_out


def mask_bytes(spec: SliceSpec) -> int:
    """Return the bytes of the mask itself: one bit for each coordinate of a masked parameter."""
    return sum(math.ceil(mask.numel() / 8) for mask in spec.mask.kept.values()) if spec.mask else 0
