"""Operations that work position by position: every axis goes through, and equal axes are one axis."""

from __future__ import annotations

import torch

from widthwise.slicing.axes import Axis, resolve
from widthwise.slicing.rules.base import TAGS, Call, Labels, Result, rule

# Those that torch does not tag as pointwise.
_POINTWISE = """
alpha_dropout bernoulli cauchy complex dropout exponential feature_alpha_dropout feature_dropout
floor_divide geometric hardswish log_normal log_sigmoid native_dropout poisson polar rand_like
randint_like randn_like random rrelu uniform
"""

#: Drop something at random, with a chance that may be 0.
DROPOUT = frozenset(
    {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "native_dropout"}
)
#: Draw numbers, whatever they are given.
RANDOM = frozenset(
    {
        *(
            "bernoulli",
            "cauchy",
            "exponential",
            "geometric",
            "log_normal",
            "multinomial",
            "normal",
            "poisson",
        ),
        *("rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm"),
        *("rrelu", "uniform"),
    }
)

# Their value has the axes of the first tensor; others give a dtype or numbers.
_SAME = """
alias clone contiguous copy detach empty_like fill full_like ones_like resolve_conj
resolve_neg to type_as zero zeros_like _conj _neg_view
"""


@rule(*_POINTWISE.split())
def elementwise(call: Call) -> Result:
    """Broadcast from the right; axes that are not of size 1 are the same axis."""
    result: list[Axis] = [()] * len(call.shape)
    for labels in call.tensors():
        result = call.broadcast(result, labels)
    return call.each(tuple(result))


TAGS[torch.Tag.pointwise] = elementwise


@rule(*_SAME.split())
def same(call: Call) -> Labels:
    """The axes of the first tensor; what is copied into it is broadcast to them."""
    x: Labels = next(call.tensors())
    if "src" in call:
        call.broadcast(x, call["src"])
    return x


@rule("prelu")
def prelu(call: Call) -> Labels:
    """One slope per channel (axis 1), or one for all."""
    x, (slopes,) = call["self"], call["weight"]
    if resolve(slopes):
        call.unify(x[1], slopes)
    return tuple(x)
