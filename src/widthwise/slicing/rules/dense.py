"""Linear maps, convolutions, embeddings: where channels are made and where they are used up."""

from __future__ import annotations

from widthwise.slicing.axes import Axis, Mismatch, fixed_axis, pin, product, size_of
from widthwise.slicing.ir import BatchSize
from widthwise.slicing.rules.base import Call, Labels, Result, rule


@rule("linear")
def linear(call: Call) -> Labels:
    """Y[..., o] = sum_i x[..., i] w[o, i] + b[o]; a weight without rows gives no axis o."""
    *batch, features = call["input"]
    *rows, columns = call["weight"]
    call.unify(features, columns)
    call.summed.append(("input", -1, features))
    if call["bias"] is not None:
        call.broadcast(rows, call["bias"])
    result = (*batch, *rows)
    call.macs.append(product(*result, columns))
    return result


@rule("bilinear")
def bilinear(call: Call) -> Labels:
    """Y[..., o] = sum_ij x1[..., i] w[o, i, j] x2[..., j] + b[o]."""
    (*one, first), (*other, second) = call["input1"], call["input2"]
    rows, left, right = call["weight"]
    call.unify(first, left)
    call.unify(second, right)
    call.summed += [("input1", -1, first), ("input2", -1, second)]
    if call["bias"] is not None:
        call.unify(rows, call["bias"][0])
    result = (*call.broadcast(one, other), rows)
    call.macs.append(product(*result, left, right))
    return result


@rule("conv1d", "conv2d", "conv3d")
def convolution(call: Call) -> Labels:
    """Kernels of shape (out, in / groups, *kernel): spatial axes and kernels are never cut."""
    rows, inputs, *kernel = call["weight"]
    return _convolve(call, rows, inputs, kernel, transposed=False)


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def transposed_convolution(call: Call) -> Labels:
    """Kernels of shape (in, out / groups, *kernel); every input position meets the whole kernel."""
    inputs, rows, *kernel = call["weight"]
    return _convolve(call, rows, inputs, kernel, transposed=True)


def _convolve(call: Call, rows: Axis, inputs: Axis, kernel: list[Axis], *, transposed: bool) -> Labels:
    """Follow a convolution. With several groups, whole groups are cut: their channels stay together."""
    x, groups, spatial = call["input"], call["groups"], len(kernel)
    if isinstance(groups, BatchSize):
        raise Mismatch("each sample has kernels of its own")
    channels = x[-spatial - 1]
    call.keep(*x[-spatial:], *kernel)
    call.summed.append(("input", -spatial - 1, channels))
    if groups == 1:
        call.unify(channels, inputs)
        outputs = rows
    else:
        # The first axis of a weight is that of all groups, the second one of a single group.
        every, single = (inputs, rows) if transposed else (rows, inputs)
        pin(single)
        group, _ = call.algebra.carve([every], [groups, size_of(every) // groups])
        outputs = (*group, *(single if transposed else fixed_axis(size_of(rows) // groups)))
        call.unify(channels, (*group, *fixed_axis(size_of(channels) // groups)))
        call.unify(every, channels if transposed else outputs)
        call.count("groups", group)
    if call["bias"] is not None:
        call.unify(outputs, call["bias"][0])
    positions = call.fixed(range(len(call.shape) - spatial, len(call.shape)))
    places = x[-spatial:] if transposed else positions
    call.macs.append(product(*x[: -spatial - 1], *places, rows, inputs, *kernel))
    return (*x[: -spatial - 1], outputs, *positions)


@rule("embedding")
def embedding(call: Call) -> Labels:
    """Rows of a table: the vocabulary is never cut, the width is a channel axis."""
    vocabulary, width = call["weight"]
    pin(vocabulary)
    return (*call["indices"], width)


@rule("embedding_bag")
def embedding_bag(call: Call) -> Result:
    """Sums, means or maxima of bags of rows; bags, and the weights of what is in them, are never cut."""
    vocabulary, width = call["weight"]
    call.keep(vocabulary, *call["indices"], *call["offsets"], *(call["per_sample_weights"] or ()))
    bags, *counts = call.shapes
    # Beside the value: the bag of each index, the size of each bag, and where the maxima came from.
    rest = [(fixed_axis(shape[0]), width)[: len(shape)] for shape in counts]
    return [(fixed_axis(bags[0]), width), *rest]


@rule("transformers.grouped_mm_fallback")
def experts(call: Call) -> Labels:
    """Y[t, o] = sum_i x[t, i] w[e(t), i, o]: rows, sorted by expert, each times its expert's matrix."""
    rows, features = call["input"]
    every, columns, outputs = call["weight"]
    call.keep(every)
    call.unify(features, columns)
    call.summed.append(("input", -1, features))
    call.macs.append(product(rows, columns, outputs))
    return rows, outputs
