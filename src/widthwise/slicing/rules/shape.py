"""Operations that move, regroup, repeat or make axes."""

from __future__ import annotations

from widthwise.slicing.axes import fixed_axis, free_axis, product, resolve, size_of
from widthwise.slicing.rules.base import Call, Labels, Result, rule
from widthwise.slicing.rules.elementwise import elementwise


@rule("view", "reshape", "_unsafe_view")
def view(call: Call) -> Labels:
    """Regroup the row-major positions. Another dtype may take the last axis apart, which then stays whole."""
    if "dtype" in call:
        x: Labels = call["self"]
        call.keep(*x[-1:])
        return (*x[:-1], *call.fixed([-1] if x else []))
    result = tuple(call.algebra.carve(call["self"], call.shape))
    call.resize("size" if "size" in call else "shape", result)
    return result


@rule("view_as", "reshape_as")
def view_as(call: Call) -> Labels:
    """Regroup the row-major positions as those of another tensor."""
    other: Labels = call["other"]
    for axis, target in zip(call.algebra.carve(call["self"], call.shape), other, strict=True):
        call.unify(axis, target)
    return other


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
    return (*x[:start], product(*x[start : end + 1]), *x[end + 1 :])


@rule("view_as_real")
def parts_of_complex(call: Call) -> Labels:
    """The real and the imaginary part, on a new last axis."""
    return (*call["self"], fixed_axis(2))


@rule("view_as_complex")
def complex_of_parts(call: Call) -> Labels:
    """The last axis is the real and the imaginary part."""
    *axes, parts = call["self"]
    call.keep(parts)
    return tuple(axes)


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
    if x:
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


@rule("expand", "expand_as", "broadcast_to")
def expand(call: Call) -> Labels:
    """Repeat axes of size 1."""
    target = call["other"] if "other" in call else tuple(free_axis(n) for n in call.shape)
    result = call.broadcast(target, call["self"])
    if "size" in call:
        call.resize("size", result)
    return tuple(result)


@rule("repeat")
def repeat(call: Call) -> Labels:
    """Repeat axes as a whole, one copy after the other; those of size 1 become what they meet."""
    x: Labels = (*[()] * (len(call.shape) - len(call["self"])), *call["self"])
    met = tuple(free_axis(size) for size in call.shape)
    call.resize("repeats", [() if resolve(axis) else new for axis, new in zip(x, met, strict=True)])
    return tuple(
        (*fixed_axis(size // size_of(axis)), *axis) if resolve(axis) else new
        for axis, new, size in zip(x, met, call.shape, strict=True)
    )


@rule("zeros", "ones", "full", "empty", "rand", "randn", "new_zeros", "new_ones", "new_full", "new_empty")
def make(call: Call) -> Labels:
    """Make a tensor whose axes take the sizes of those that they meet."""
    result = tuple(free_axis(n) for n in call.shape)
    call.resize("size", result)
    return result


@rule("normal")
def normal(call: Call) -> Result:
    """Draw numbers: of a size that is given, or one for each position of what is given."""
    return make(call) if "size" in call else elementwise(call)


@rule("arange", "linspace", "scalar_tensor", "eye")
def number(call: Call) -> Labels:
    """Make a tensor of numbers; its axes are never cut."""
    return call.fixed(range(len(call.shape)))
