"""Pooling, resizing and padding: the trailing spatial axes change, channels go through."""

from __future__ import annotations

from widthwise.slicing.axes import Axis, fixed_axis, pin
from widthwise.slicing.rules.base import Call, Labels, Result, rule

_DIMS = {
    1: "max_pool1d max_pool1d_with_indices avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d "
    "upsample_nearest1d upsample_linear1d",
    2: "max_pool2d max_pool2d_with_indices avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d "
    "upsample_nearest2d upsample_bilinear2d upsample_bicubic2d",
    3: "max_pool3d max_pool3d_with_indices avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d "
    "upsample_nearest3d upsample_trilinear3d",
}
_SPATIAL = {name: dims for dims, names in _DIMS.items() for name in names.split()}


@rule(*_SPATIAL)
def pool(call: Call) -> Result:
    """Every channel on its own; the spatial axes are never cut."""
    x: Labels = call["input" if "input" in call else "self"]
    dims = _SPATIAL[call.schema.name.removeprefix("aten::")]
    for axis in x[-dims:]:
        pin(axis)
    shapes = call.step.shape
    if isinstance(shapes, list):
        return [(*x[:-dims], *(fixed_axis(n) for n in shape[-dims:])) for shape in shapes]
    return (*x[:-dims], *call.fixed(range(len(x) - dims, len(x))))


@rule("constant_pad_nd", "pad")
def padding(call: Call) -> Labels:
    """A padded axis is never cut; the others go through."""
    x: Labels = call["self"]
    result: list[Axis] = []
    amounts = list(call["pad"])
    for back, axis in enumerate(reversed(x)):
        if any(amounts[2 * back : 2 * back + 2]):
            pin(axis)
            axis = fixed_axis(call.shape[len(x) - 1 - back])
        result.insert(0, axis)
    return tuple(result)
