"""Operations that reduce axes: over the kept channels, where such an axis is cut."""

from __future__ import annotations

from widthwise.slicing.axes import Axis, resolve
from widthwise.slicing.rules.base import Call, Labels, Result, rule, whole
from widthwise.slicing.rules.elementwise import elementwise


def named_dims(call: Call, rank: int, name: str = "dim") -> list[int]:
    """Return the dimensions that a call names, in ascending order; all where it names none."""
    given = call.get(name)
    named = [given] if isinstance(given, int) else given
    return sorted({dim % rank for dim in named}) if named and rank else list(range(rank))


@rule("mean", "amax", "amin", "var", "var_mean", "std", "std_mean", "logsumexp", "prod", "any", "all")
def statistic(call: Call) -> Result:
    """A statistic: it depends on how many positions are kept."""
    x: Labels = call["self"]
    call.mixed.extend(x[dim] for dim in named_dims(call, len(x)))
    return _dropped(call)


@rule("sum", "nansum", "norm", "linalg_vector_norm", "count_nonzero")
def total(call: Call) -> Result:
    """A sum, to which a channel that is zero adds nothing; of norms only the smallest magnitude is none."""
    order = call.get("p") if "p" in call else call.get("ord")
    if order is not None and order < 0:
        return statistic(call)
    x: Labels = call["self"]
    call.summed.extend(("self", dim - len(x), x[dim]) for dim in named_dims(call, len(x)))
    return _dropped(call)


@rule("max", "min")
def extremum(call: Call) -> Result:
    """The largest value; where the position is used too, it has a meaning and the axis stays whole."""
    if "other" in call:
        return elementwise(call)
    return position(call) if 1 in call.used else statistic(call)


@rule("argmax", "argmin", "median", "nanmedian", "mode", "kthvalue")
def position(call: Call) -> Result:
    """What is found at a position by its rank: the reduced axes stay whole."""
    x: Labels = call["self"]
    call.keep(*(x[dim] for dim in named_dims(call, len(x))))
    return _dropped(call)


def _dropped(call: Call) -> Result:
    x: Labels = call["self"]
    reduced = named_dims(call, len(x))
    keep = call.get("keepdim")
    return call.each(tuple(() if i in reduced else a for i, a in enumerate(x) if keep or i not in reduced))


@rule("softmax", "log_softmax")
def softmax(call: Call) -> Labels:
    """Along a cut axis it is one over the kept positions."""
    x: Labels = call["self"]
    call.mixed.extend(x[dim] for dim in named_dims(call, len(x)))
    return tuple(x)


@rule("squeeze")
def squeeze(call: Call) -> Labels:
    """Drop the axes that have size 1 in the full model; one that is cut down to 1 stays."""
    x: Labels = call["self"]
    dropped = [dim for dim in named_dims(call, len(x)) if not resolve(x[dim])]
    call.rewrite("aten.squeeze.dims", call.step.args[0], dropped)
    kept: list[Axis] = [axis for dim, axis in enumerate(x) if dim not in dropped]
    return tuple(kept)


# Predictions are outputs, or are compared with numbers of the same kind: of both every channel stays.
rule(
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "huber_loss",
    "mse_loss",
    "nll_loss2d_forward",
    "nll_loss_forward",
    "smooth_l1_loss",
)(whole)
