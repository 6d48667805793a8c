"""Operations for which the order or the number of positions along an axis matters: the axis stays whole."""

from __future__ import annotations

from widthwise.slicing.axes import fixed_axis
from widthwise.slicing.rules.base import Call, Labels, Result, rule
from widthwise.slicing.rules.reduce import named_dims

_ALONG = """
cumsum cumprod cummax cummin logcumsumexp sort argsort topk flip roll rot90 index_select
_fft_c2c _fft_r2c _fft_c2r
"""


@rule(*_ALONG.split())
def along(call: Call) -> Result:
    """Along the named axes, all where none is named; the others go through."""
    x: Labels = call["self"]
    dims = named_dims(call, len(x), "dims" if "dims" in call else "dim")
    call.keep(*(x[dim] for dim in dims), *(call.get("index") or ()))
    labels = tuple(fixed_axis(call.shape[dim]) if dim in dims else axis for dim, axis in enumerate(x))
    return call.each(labels)


@rule("unfold")
def windows(call: Call) -> Labels:
    """Windows along an axis, each on a new last axis."""
    x = list(call["self"])
    dim = call.dim("dimension", len(x))
    call.keep(x[dim])
    return (*x[:dim], fixed_axis(call.shape[dim]), *x[dim + 1 :], fixed_axis(call.shape[-1]))


@rule("tril", "triu")
def triangle(call: Call) -> Labels:
    """A triangle of matrices."""
    x: Labels = call["self"]
    call.keep(*x[-2:])
    return x


@rule("diagonal")
def diagonal(call: Call) -> Labels:
    """The diagonal of two axes, on a new last axis."""
    x: Labels = call["self"]
    dims = {call.dim("dim1", len(x)), call.dim("dim2", len(x))}
    call.keep(*(x[dim] for dim in dims))
    return (*(axis for dim, axis in enumerate(x) if dim not in dims), *call.fixed([-1]))


@rule("linalg_cross")
def cross(call: Call) -> Labels:
    """The product of vectors in space."""
    labels = call.broadcast(call["self"], call["other"])
    call.keep(labels[call.dim("dim", len(labels))])
    return tuple(labels)
