"""Operations that move, group, drop or make axes."""

from __future__ import annotations

from widthwise.slicing.axes import Axis, Mismatch, concat, fixed_axis, free_axis, pin, resolve, size_of
from widthwise.slicing.rules.base import Call, Labels, Result, rule
from widthwise.slicing.rules.elementwise import elementwise


@rule("view", "reshape", "_unsafe_view")
def view(call: Call) -> Labels:
    """Regroup the row-major positions."""
    result = tuple(call.algebra.carve(call["self"], call.shape))
    call.resize("size" if "size" in call else "shape", result)
    return result


@rule("unflatten")
def unflatten(call: Call) -> Labels:
    """Regroup one axis into several."""
    result = tuple(call.algebra.carve(call["self"], call.shape))
    dim = call.dim("dim", len(call["self"]))
    call.resize("sizes", result[dim : dim + len(call["sizes"])])
    return result


@rule("flatten")
def flatten(call: Call) -> Labels:
    """Join neighbouring axes into their product."""
    x: Labels = call["self"]
    if not x:
        return ((),)
    start, end = call.dim("start_dim", len(x)), call.dim("end_dim", len(x))
    joined = tuple(atom for axis in x[start : end + 1] for atom in resolve(axis))
    return (*x[:start], joined, *x[end + 1 :])


@rule("permute")
def permute(call: Call) -> Labels:
    """Reorder axes."""
    x: Labels = call["self"]
    return tuple(x[dim % len(x)] for dim in call["dims"])


@rule("transpose", "swapaxes")
def transpose(call: Call) -> Labels:
    """Exchange two axes."""
    x = list(call["self"])
    first, second = ("dim0", "dim1") if "dim0" in call else ("axis0", "axis1")
    i, j = call.dim(first, len(x)), call.dim(second, len(x))
    x[i], x[j] = x[j], x[i]
    return tuple(x)


@rule("t", "numpy_T")
def reverse(call: Call) -> Labels:
    """Reverse the order of the axes."""
    return tuple(reversed(call["self"]))


@rule("movedim")
def movedim(call: Call) -> Labels:
    """Move axes to other places."""
    x: Labels = call["self"]
    sources = [call["source"]] if isinstance(call["source"], int) else call["source"]
    targets = [call["destination"]] if isinstance(call["destination"], int) else call["destination"]
    places = {target % len(x): source % len(x) for source, target in zip(sources, targets, strict=True)}
    rest = iter(dim for dim in range(len(x)) if dim not in places.values())
    return tuple(x[places[dim] if dim in places else next(rest)] for dim in range(len(x)))


@rule("unsqueeze")
def unsqueeze(call: Call) -> Labels:
    """Insert an axis of size 1."""
    x = list(call["self"])
    x.insert(call.dim("dim", len(x) + 1), ())
    return tuple(x)


@rule("squeeze")
def squeeze(call: Call) -> Labels:
    """Drop the axes that have size 1 in the full model; one that is cut down to 1 stays."""
    x: Labels = call["self"]
    dropped = [dim for dim in _dims(call, len(x)) if not resolve(x[dim])]
    call.rewrite("aten.squeeze.dims", call.step.args[0], dropped)
    return tuple(axis for dim, axis in enumerate(x) if dim not in dropped)


@rule("expand", "expand_as", "broadcast_to")
def expand(call: Call) -> Labels:
    """Repeat axes of size 1."""
    x: Labels = call["self"]
    target: Labels = call["other"] if "other" in call else tuple(free_axis(n) for n in call.shape)
    result = list(target)
    for back, axis in enumerate(reversed(x), start=1):
        if resolve(axis):
            call.unify(axis, result[-back])
            result[-back] = axis
    if "size" in call:
        call.resize("size", result)
    return tuple(result)


@rule("select")
def select(call: Call) -> Labels:
    """Take one position of an axis, which therefore stays whole."""
    x: Labels = call["self"]
    dim = call.dim("dim", len(x))
    pin(x[dim])
    return (*x[:dim], *x[dim + 1 :])


@rule("slice")
def slice_(call: Call) -> Labels:
    """Take a stretch of an axis, which therefore stays whole, unless the stretch is all of it."""
    x = list(call["self"])
    dim = call.dim("dim", len(x))
    if call.shape[dim] != size_of(x[dim]):
        pin(x[dim])
        x[dim] = fixed_axis(call.shape[dim])
    return tuple(x)


@rule("index_select", "flip", "roll")
def reorder(call: Call) -> Labels:
    """Take positions of axes in another order; these axes stay whole."""
    x = list(call["self"])
    dims = call["dim" if "dim" in call else "dims"]
    for dim in [dims] if isinstance(dims, int) else dims:
        pin(x[dim])
        x[dim] = fixed_axis(call.shape[dim])
    return tuple(x)


@rule("index")
def index(call: Call) -> Labels:
    """Gather positions by tensors of numbers: an indexed axis stays whole, the others go through.

    The numbers' own axes stand where the first indexed axis stood, or in front if these are not neighbours.
    """
    x: Labels = call["self"]
    given = [labels if isinstance(labels, tuple) else None for labels in call["indices"]]
    given += [None] * (len(x) - len(given))
    if len(given) > len(x):
        raise Mismatch("a mask picks positions")
    dims = [dim for dim, labels in enumerate(given) if labels is not None]
    for dim in dims:
        pin(x[dim])
    rank = max(len(labels) for labels in given if labels is not None)
    numbers: list[Axis] = [()] * rank
    for labels in given:
        for back, axis in enumerate(reversed(labels or ()), start=1):
            if resolve(axis):
                if resolve(numbers[-back]):
                    call.unify(numbers[-back], axis)
                numbers[-back] = axis
    rest = [axis for dim, axis in enumerate(x) if dim not in dims]
    at = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    return (*rest[:at], *numbers, *rest[at:])


@rule("split", "split_with_sizes", "chunk", "tensor_split")
def split(call: Call) -> Result:
    """Divide an axis into consecutive pieces."""
    x: Labels = call["self"]
    dim = call.dim("dim", len(x))
    shapes = call.step.shape
    assert isinstance(shapes, list)
    pieces = call.algebra.divide(x[dim], [shape[dim] for shape in shapes])
    if "split_size" in call and isinstance(call["split_size"], int):
        call.count("split_size", pieces[0])
    elif "split_sizes" in call:
        call.resize("split_sizes", pieces)
    return [(*x[:dim], piece, *x[dim + 1 :]) for piece in pieces]


@rule("glu")
def gated(call: Call) -> Labels:
    """The first half of an axis times the sigmoid of the second: both halves are cut alike."""
    x = list(call["self"])
    dim = call.dim("dim", len(x))
    x[dim], gate = call.algebra.divide(x[dim], [call.shape[dim]] * 2)
    call.unify(x[dim], gate)
    return tuple(x)


@rule("unbind")
def unbind(call: Call) -> Result:
    """Take every position of an axis on its own; the axis stays whole."""
    x: Labels = call["self"]
    dim = call.dim("dim", len(x))
    pin(x[dim])
    return [(*x[:dim], *x[dim + 1 :])] * size_of(x[dim])


@rule("cat", "concat", "concatenate")
def cat(call: Call) -> Labels:
    """Join tensors along an axis; the other axes are the same in all of them."""
    tensors: list[Labels] = call["tensors"]
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


def _dims(call: Call, rank: int) -> list[int]:
    """Return the dimensions that a call names, in ascending order; all where it names none."""
    given = call.get("dim")
    named = [given] if isinstance(given, int) else given
    return sorted({dim % rank for dim in named}) if named else list(range(rank))


@rule(
    "mean",
    "sum",
    "amax",
    "amin",
    "max",
    "min",
    "var",
    "std",
    "logsumexp",
    "prod",
    "norm",
    "linalg_vector_norm",
)
def reduce(call: Call) -> Result:
    """Reduce axes away: over the kept channels, where such an axis is cut."""
    if "other" in call:
        return elementwise(call)
    x: Labels = call["self"]
    reduced = set(_dims(call, len(x)))
    call.mixed.extend(x[dim] for dim in reduced)
    keep = call.get("keepdim")
    result = tuple(() if i in reduced else axis for i, axis in enumerate(x) if keep or i not in reduced)
    shapes = call.step.shape
    return [result] * len(shapes) if isinstance(shapes, list) else result


@rule("zeros", "ones", "full", "empty", "rand", "randn", "new_zeros", "new_ones", "new_full", "new_empty")
def make(call: Call) -> Labels:
    """Make a tensor whose axes take the sizes of those that they meet."""
    result: tuple[Axis, ...] = tuple(free_axis(n) for n in call.shape)
    call.resize("size", result)
    return result


@rule("arange", "linspace", "scalar_tensor", "eye")
def number(call: Call) -> Labels:
    """Make a tensor of numbers; its axes are never cut."""
    return call.fixed(range(len(call.shape)))
