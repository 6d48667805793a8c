"""Matrix products, convolutions, embeddings: where channels are made and where they are used up."""

from __future__ import annotations

import math

from widthwise.slicing.axes import Axis, Mismatch, fixed_axis, pin, resolve, size_of
from widthwise.slicing.rules.base import Call, Labels, rule


@rule("linear")
def linear(call: Call) -> Labels:
    """Y[..., o] = sum_i x[..., i] w[o, i] + b[o]."""
    *batch, features = call["input"]
    rows, columns = call["weight"]
    call.unify(features, columns)
    if call["bias"] is not None:
        call.unify(rows, call["bias"][0])
    result = (*batch, rows)
    call.macs.append(_product(*result, columns))
    return result


@rule("matmul", "mm", "bmm", "mv", "dot")
def matmul(call: Call) -> Labels:
    """C[..., n, m] = sum_k a[..., n, k] b[..., k, m], the leading axes broadcast."""
    other = next(name for name in ("other", "mat2", "vec") if name in call)
    return _matmul(call, "self", other)


@rule("addmm", "baddbmm")
def addmm(call: Call) -> Labels:
    """A matrix product plus a broadcast tensor."""
    first, second = ("mat1", "mat2") if "mat1" in call else ("batch1", "batch2")
    result = _matmul(call, first, second)
    for axis, added in zip(reversed(result), reversed(call["self"]), strict=False):
        if resolve(added):
            call.unify(axis, added)
    return result


def _matmul(call: Call, first: str, second: str) -> Labels:
    left, right = list(call[first]), list(call[second])
    inner = left[-1]
    call.summed.append((first, -1, inner))
    call.unify(inner, right[-2] if len(right) > 1 else right[0])
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else []
    batch = _broadcast(call, left[:-2], right[:-2])
    result = (*batch, *rows, *columns)
    call.macs.append(_product(*result, inner))
    return result


def _broadcast(call: Call, one: list[Axis], other: list[Axis]) -> list[Axis]:
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    result = list(longer)
    for back, axis in enumerate(reversed(shorter), start=1):
        if resolve(axis):
            if resolve(result[-back]):
                call.unify(result[-back], axis)
            result[-back] = axis
    return result


@rule("conv1d", "conv2d", "conv3d")
def convolution(call: Call) -> Labels:
    """Kernels of shape (out, in / groups, *kernel): spatial axes and kernels are never cut.

    With several groups, whole groups are cut: the channels of a group stay together.
    """
    x, weight = call["input"], call["weight"]
    spatial = len(weight) - 2
    channels, rows, groups = x[-spatial - 1], weight[0], call["groups"]
    _pin_all(x[-spatial:], weight[2:])
    if groups == 1:
        call.unify(channels, weight[1])
    else:
        (group, inside) = call.algebra.carve([channels], [groups, size_of(weight[1])])
        call.unify(inside, weight[1])
        per_group = fixed_axis(size_of(rows) // groups)
        pin(inside)
        call.unify(rows, (*group, *per_group))
        call.count("groups", group)
    if call["bias"] is not None:
        call.unify(rows, call["bias"][0])
    result = (*x[: -spatial - 1], rows, *call.fixed(range(len(call.shape) - spatial, len(call.shape))))
    call.macs.append(_product(*result, *weight[1:]))
    return result


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def transposed_convolution(call: Call) -> Labels:
    """Kernels of shape (in, out, *kernel); every input position is multiplied with the whole kernel."""
    x, weight = call["input"], call["weight"]
    spatial = len(weight) - 2
    if call["groups"] != 1:
        raise Mismatch("a transposed convolution has several groups")
    _pin_all(x[-spatial:], weight[2:])
    call.unify(x[-spatial - 1], weight[0])
    if call["bias"] is not None:
        call.unify(weight[1], call["bias"][0])
    call.macs.append(_product(*x, *weight[1:]))
    return (*x[: -spatial - 1], weight[1], *call.fixed(range(len(call.shape) - spatial, len(call.shape))))


@rule("embedding")
def embedding(call: Call) -> Labels:
    """Rows of a table: the vocabulary is never cut, the width is a channel axis."""
    vocabulary, width = call["weight"]
    pin(vocabulary)
    return (*call["indices"], width)


@rule("scaled_dot_product_attention")
def attention(call: Call) -> Labels:
    """Softmax(q k^T / sqrt(e) + mask) v. Where the head size e is cut, the scale stays the full model's."""
    query, key, value = list(call["query"]), list(call["key"]), list(call["value"])
    if not call.algebra.inside:
        _pin_all([query[-1], key[-1]])
    elif call["scale"] is None:
        call.kwargs["scale"] = 1.0 / math.sqrt(size_of(query[-1]))
    call.unify(query[-1], key[-1])
    call.unify(key[-2], value[-2])
    call.summed.append(("query", -1, query[-1]))
    batch = _broadcast(call, _broadcast(call, query[:-2], key[:-2]), value[:-2])
    if call["attn_mask"] is not None:
        *batch, _, _ = _broadcast(call, [*batch, query[-2], key[-2]], list(call["attn_mask"]))
    call.macs.append(_product(*batch, query[-2], key[-2], query[-1]))
    call.macs.append(_product(*batch, query[-2], key[-2], value[-1]))
    return (*batch, query[-2], value[-1])


def _product(*axes: Axis) -> Axis:
    return tuple(atom for axis in axes for atom in axis)


def _pin_all(*labels: Labels | list[Axis]) -> None:
    for axes in labels:
        for axis in axes:
            pin(axis)
