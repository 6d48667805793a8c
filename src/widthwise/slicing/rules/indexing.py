"""Operations that read or write at positions that tensors of numbers name: such an axis stays whole."""

from __future__ import annotations

from collections.abc import Sequence

from widthwise.slicing.axes import Axis, Mismatch, size_of
from widthwise.slicing.rules.base import Call, Labels, rule, whole


@rule("index")
def index(call: Call) -> Labels:
    """Gather positions by tensors of numbers: an indexed axis stays whole, the others go through."""
    return _indexed(call)


@rule("index_put")
def index_put(call: Call) -> Labels:
    """Write where ``index`` would read, or where a mask over the leading axes is true."""
    x, values = list(call["self"]), list(call["values"])
    mask: Labels = call["indices"][0] if isinstance(call["indices"][0], tuple) else ()
    if len(mask) > 1 and _sizes(mask) == _sizes(x[: len(mask)]):
        rest = x[len(mask) :]
        own = values[max(0, len(values) - len(rest)) :]
        call.keep(*x[: len(mask)], *mask, *values[: len(values) - len(own)])
        call.broadcast(rest, own)
    else:
        call.broadcast(_indexed(call), values)
    return tuple(x)


def _indexed(call: Call) -> Labels:
    """Return the labels of x[indices].

    The numbers' own axes stand where the first indexed axis stood, or in front if these are not neighbours.
    """
    x: Labels = call["self"]
    given = [labels if isinstance(labels, tuple) else None for labels in call["indices"]]
    given += [None] * (len(x) - len(given))
    if len(given) > len(x):
        raise Mismatch("a mask picks positions")
    dims = [dim for dim, labels in enumerate(given) if labels is not None]
    call.keep(*(x[dim] for dim in dims))
    numbers: list[Axis] = []
    for labels in given:
        numbers = call.broadcast(numbers, labels or ())
    rest = [axis for dim, axis in enumerate(x) if dim not in dims]
    at = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    return (*rest[:at], *numbers, *rest[at:])


@rule("gather")
def gather(call: Call) -> Labels:
    """Y[i, j] = x[index[i, j], j]: the axes that are not named are the same if they are equally long."""
    x, numbers = list(call["self"]), list(call["index"])
    dim = call.dim("dim", len(x)) if x else 0
    _align(call, x, numbers, dim)
    return tuple(numbers)


@rule("scatter", "scatter_add", "scatter_reduce")
def scatter(call: Call) -> Labels:
    """X[index[i, j], j] = src[i, j]: as ``gather``, the other way."""
    x, numbers = list(call["self"]), list(call["index"])
    dim = call.dim("dim", len(x)) if x else 0
    _align(call, x, numbers, dim)
    if isinstance(source := call.get("src"), tuple):
        for axis, own in zip(numbers, source, strict=True):
            _same_if_equal(call, axis, own)
    return tuple(x)


@rule("index_add", "index_copy", "index_fill", "index_reduce")
def index_add(call: Call) -> Labels:
    """Write rows at the positions that the index names."""
    x = list(call["self"])
    dim = call.dim("dim", len(x)) if x else 0
    call.keep(*x[dim : dim + 1], *call["index"])
    for i, (axis, own) in enumerate(zip(x, call.get("source") or x, strict=True)):
        if i != dim:
            call.unify(axis, own)
        else:
            call.keep(own)
    return tuple(x)


rule("masked_scatter", "take", "put")(whole)  # positions are counted over the whole tensor


def _align(call: Call, x: list[Axis], numbers: list[Axis], dim: int) -> None:
    for i, (axis, own) in enumerate(zip(x, numbers, strict=True)):
        if i == dim:
            call.keep(axis, own)
        else:
            _same_if_equal(call, axis, own)


def _sizes(axes: Sequence[Axis]) -> list[int]:
    """Return the numbers of positions of axes."""
    return [size_of(axis) for axis in axes]


def _same_if_equal(call: Call, one: Axis, other: Axis) -> None:
    """Two axes are the same, or the shorter one meets the first positions of the longer one."""
    if size_of(one) == size_of(other):
        call.unify(one, other)
    else:
        call.keep(one, other)
