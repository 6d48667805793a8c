"""Normalisation layers: weights follow the channels, statistics may depend on how many are kept."""

from __future__ import annotations

from widthwise.slicing.axes import size_of
from widthwise.slicing.rules.base import Call, Labels, rule


@rule("batch_norm", "instance_norm")
def per_channel(call: Call) -> Labels:
    """Statistics of each channel (axis 1) on its own; running statistics are cut with the channels.

    They are taken over the positions, and by a batch norm over the samples.
    """
    x = call["input"]
    for name in ("weight", "bias", "running_mean", "running_var"):
        if call[name] is not None:
            call.unify(x[1], call[name][0])
    if call.get("training"):
        call.mixed.extend((x[0], *x[2:]))
    elif call.get("use_input_stats"):
        call.mixed.extend(x[2:])
    return tuple(x)


@rule("group_norm")
def group_norm(call: Call) -> Labels:
    """Statistics of groups of neighbouring channels: the number of groups follows (see ``GroupCount``)."""
    x = call["input"]
    for name in ("weight", "bias"):
        if call[name] is not None:
            call.unify(x[1], call[name][0])
    call.mixed.extend(x[1:])
    call.count("num_groups", x[1], per_group=size_of(x[1]) // call["num_groups"])
    return tuple(x)


@rule("layer_norm", "rms_norm")
def layer_norm(call: Call) -> Labels:
    """Statistics over the last axes: where one is cut, over its kept channels."""
    x = call["input"]
    normalized = x[len(x) - len(call["normalized_shape"]) :]
    for name in ("weight", "bias"):
        if call.get(name) is not None:
            for axis, own in zip(normalized, call[name], strict=True):
                call.unify(axis, own)
    call.mixed.extend(normalized)
    call.resize("normalized_shape", normalized)
    return tuple(x)


@rule("_weight_norm")
def weight_norm(call: Call) -> Labels:
    """W = g v / |v|, the norm over all axes but one: of what is kept of v, which is zero elsewhere."""
    v: Labels = call["v"]
    call.broadcast(v, call["g"])
    own = call.dim("dim", len(v))
    call.summed.extend(("v", dim - len(v), axis) for dim, axis in enumerate(v) if dim != own)
    return v
