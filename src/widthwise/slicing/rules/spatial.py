"""Pooling, resizing, sampling and shuffles: the trailing spatial axes change, channels go through."""

from __future__ import annotations

from widthwise.slicing.axes import fixed_axis, size_of
from widthwise.slicing.rules.base import Call, Labels, Result, rule

_POOLS = "max_pool{n}d max_pool{n}d_with_indices avg_pool{n}d adaptive_avg_pool{n}d adaptive_max_pool{n}d"
_RESIZED = "upsample_nearest{n}d _upsample_nearest_exact{n}d"
_DIMS = {
    1: "upsample_linear1d",
    2: "upsample_bilinear2d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa max_unpool2d "
    "fractional_max_pool2d",
    3: "upsample_trilinear3d max_unpool3d fractional_max_pool3d",
}
_SPATIAL = {
    name: dims
    for dims, own in _DIMS.items()
    for name in (*_POOLS.format(n=dims).split(), *_RESIZED.format(n=dims).split(), *own.split())
}


@rule(*_SPATIAL)
def pool(call: Call) -> Result:
    """Every channel on its own; the spatial axes are never cut."""
    x: Labels = call["input" if "input" in call else "self"]
    dims = _SPATIAL[call.schema.name.removeprefix("aten::")]
    call.keep(*x[-dims:])
    if "indices" in call:  # where to put what was pooled
        for axis, own in zip(x, call["indices"], strict=True):
            call.unify(axis, own)
    if "random_samples" in call:  # of each sample and channel, one number for each spatial axis
        *channels, numbers = call["random_samples"]
        call.broadcast(x[:-dims], channels)
        call.keep(numbers)
    result = [(*x[:-dims], *(fixed_axis(n) for n in shape[-dims:])) for shape in call.shapes]
    return result if isinstance(call.step.shape, list) else result[0]


@rule("grid_sampler")
def sample(call: Call) -> Labels:
    """Read every channel at the positions (of the last axis) of a grid."""
    (batch, channels, *positions), (other, *grid) = call["input"], call["grid"]
    call.unify(batch, other)
    call.keep(*positions, *grid)
    return (batch, channels, *grid[:-1])


@rule("affine_grid_generator")
def grid(call: Call) -> Labels:
    """Make the grid of an affine map of each sample."""
    batch, *numbers = call["theta"]
    call.keep(*numbers)
    return (batch, *call.fixed(range(1, len(call.shape))))


@rule("pixel_shuffle")
def pixel_shuffle(call: Call) -> Labels:
    """Channel (c, i, j) becomes pixel (i, j) of a block: the r r channels of one c stay together."""
    *batch, channels, rows, columns = call["self"]
    outer, block = call.algebra.carve([channels], [call.shape[-3], size_of(channels) // call.shape[-3]])
    call.keep(block, rows, columns)
    return (*batch, outer, *call.fixed([-2, -1]))


@rule("pixel_unshuffle")
def pixel_unshuffle(call: Call) -> Labels:
    """The pixels of a block become channels, the inner ones of each channel."""
    *batch, channels, rows, columns = call["self"]
    call.keep(rows, columns)
    block = fixed_axis(call["downscale_factor"] ** 2)
    return (*batch, (*channels, *block), *call.fixed([-2, -1]))


@rule("channel_shuffle")
def channel_shuffle(call: Call) -> Labels:
    """Channel (g, c) becomes channel (c, g): whole groups are cut, or with ``inside`` channels of each."""
    batch, channels, *positions = call["self"]
    groups = call["groups"]
    outer, inner = call.algebra.carve([channels], [groups, size_of(channels) // groups])
    call.count("groups", outer)
    return (batch, (*inner, *outer), *positions)


@rule("im2col")
def patches(call: Call) -> Labels:
    """Each patch becomes a column of (channel, row, column) values."""
    *batch, channels, rows, columns = call["self"]
    call.keep(rows, columns)
    block = fixed_axis(call.shape[-2] // size_of(channels))
    return (*batch, (*channels, *block), *call.fixed([-1]))


@rule("col2im")
def from_patches(call: Call) -> Labels:
    """Sum the columns of ``im2col`` back into an image."""
    *batch, values, places = call["self"]
    channels, block = call.algebra.carve([values], [call.shape[-3], size_of(values) // call.shape[-3]])
    call.keep(block, places)
    return (*batch, channels, *call.fixed([-2, -1]))
