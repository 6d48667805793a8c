"""Operations that take an axis apart into consecutive pieces, or join pieces to one."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from widthwise.slicing.axes import Axis, concat, fixed_axis, free_atoms, pin, resolve, size_of
from widthwise.slicing.ir import BATCH, BatchSize
from widthwise.slicing.rules.base import Call, Labels, Result, rule


@rule("split", "split_with_sizes", "chunk", "tensor_split")
def split(call: Call) -> Result:
    """Divide an axis into consecutive pieces; how many channels each keeps is told one by one."""
    x: Labels = call["self"]
    dim = call.dim("dim", len(x))
    sizes = [shape[dim] for shape in call.shapes]
    pieces = call.algebra.divide(x[dim], sizes)
    if free_atoms(x[dim]):
        call.rewrite("aten.split_with_sizes.default", call.step.args[0], sizes, dim)
        call.resize("split_sizes", pieces)
    return [(*x[:dim], piece, *x[dim + 1 :]) for piece in pieces]


@rule("slice")
def stretch(call: Call) -> Labels:
    """Take a stretch of an axis: one of equal pieces, whole parts of a concatenation, or every n-th channel.

    The axis stays whole where the stretch is none of these.
    """
    x = list(call["self"])
    dim = call.dim("dim", len(x))
    size = size_of(x[dim])
    start, stop, step = slice(_number(call["start"]), _number(call["end"]), call["step"]).indices(size)
    if call.shape[dim] == size:
        return tuple(x)
    if not free_atoms(x[dim]):
        x[dim] = fixed_axis(call.shape[dim])
        return tuple(x)
    found = _pieces(call, x[dim], start, stop, step)
    if found is None:
        call.algebra.keep_whole(f"{call.shape[dim]} of {size} channels are taken from {start}", x[dim])
        x[dim] = fixed_axis(call.shape[dim])
        return tuple(x)
    before, taken, end = found
    call.rewrite("aten.slice.Tensor", call.step.args[0], dim, start, stop, step)
    call.count("end", end)
    if before:
        call.count("start", before)
    x[dim] = taken
    return tuple(x)


def _pieces(call: Call, axis: Axis, start: int, stop: int, step: int) -> tuple[Axis, Axis, Axis] | None:
    """Return what lies before a stretch, the stretch, and what lies before its end."""
    size, length = size_of(axis), stop - start
    atoms = resolve(axis)
    if step == 1 and len(atoms) == 1 and atoms[0].parts:
        parts = atoms[0].parts
        borders = [0, *accumulate(map(size_of, parts))]
        if start in borders and stop in borders:
            first, last = borders.index(start), borders.index(stop)
            return concat(parts[:first]) if first else (), concat(parts[first:last]), concat(parts[:last])
        return None
    if step == 1 and length and size % length == 0 and start % length == 0:
        count, piece = call.algebra.carve([axis], [size // length, length])
        pin(count)
        blocks = start // length
        return (*fixed_axis(blocks), *piece) if blocks else (), piece, (*fixed_axis(blocks + 1), *piece)
    if step > 1 and size % step == 0 and start < step and stop > size - step + start:
        channels, block = call.algebra.carve([axis], [size // step, step])
        pin(block)
        return (), channels, axis
    return None


def _number(argument: Any) -> Any:
    return argument.times * BATCH if isinstance(argument, BatchSize) else argument


@rule("glu")
def gated(call: Call) -> Labels:
    """The first half of an axis times the sigmoid of the second: both halves are cut alike."""
    x = list(call["self"])
    dim = call.dim("dim", len(x))
    x[dim], gate = call.algebra.divide(x[dim], [call.shape[dim]] * 2)
    call.unify(x[dim], gate)
    return tuple(x)


@rule("select")
def select(call: Call) -> Labels:
    """Take one position of an axis, which therefore stays whole."""
    x: Labels = call["self"]
    dim = call.dim("dim", len(x))
    pin(x[dim])
    return (*x[:dim], *x[dim + 1 :])


@rule("unbind")
def unbind(call: Call) -> Result:
    """Take every position of an axis on its own; the axis stays whole."""
    x: Labels = call["self"]
    dim = call.dim("dim", len(x))
    pin(x[dim])
    return [(*x[:dim], *x[dim + 1 :])] * size_of(x[dim])


@rule("cat")
def cat(call: Call) -> Labels:
    """Join tensors along an axis; the other axes are the same in all of them.

    As torch does, leave out tensors of shape (0,), whatever the shape of the others.
    """
    given: list[Labels] = call["tensors"]
    tensors = [labels for labels in given if [*map(size_of, labels)] != [0]] or given
    first = list(tensors[0])
    dim = call.dim("dim", len(first))
    for other in tensors[1:]:
        for i, (axis, own) in enumerate(zip(first, other, strict=True)):
            if i != dim:
                call.unify(axis, own)
    first[dim] = concat([labels[dim] for labels in tensors])
    return tuple(first)


@rule("stack")
def stack(call: Call) -> Labels:
    """Join tensors along a new axis, which stays whole."""
    tensors: list[Labels] = call["tensors"]
    first = list(tensors[0])
    for other in tensors[1:]:
        for axis, own in zip(first, other, strict=True):
            call.unify(axis, own)
    first.insert(call.dim("dim", len(first) + 1), fixed_axis(len(tensors)))
    return tuple(first)


@rule("constant_pad_nd", "pad")
def padding(call: Call) -> Labels:
    """A constant is joined to an axis at both ends. Of what is reflected or repeated the axis stays whole."""
    x = list(call["self"])
    amounts = list(call["pad"])
    constant = call.get("mode") in (None, "constant")
    for back, pair in enumerate(zip(amounts[::2], amounts[1::2], strict=True), start=1):
        if constant and min(pair) >= 0:
            before, after = ([fixed_axis(n)] if n else [] for n in pair)
            x[-back] = concat([*before, x[-back], *after])
        elif any(pair):
            pin(x[-back])
            x[-back] = fixed_axis(call.shape[-back])
    return tuple(x)
