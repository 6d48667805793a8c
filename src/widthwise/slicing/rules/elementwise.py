"""Operations that work position by position: every axis goes through, and equal axes are one axis."""

from __future__ import annotations

from widthwise.slicing.axes import Axis, resolve
from widthwise.slicing.rules.base import Call, Labels, Result, rule

# ruff: noqa: E501
_ELEMENTWISE = """
abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not
bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min complex conj_physical copysign cos cosh
deg2rad digamma div elu eq erf erfc erfinv exp exp2 expm1 floor floor_divide fmax fmin fmod frac ge gelu gt hardshrink
hardsigmoid hardswish hardtanh heaviside hypot igamma igammac isinf isnan ldexp le leaky_relu lerp lgamma log log10 log1p
log2 log_sigmoid logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit lt masked_fill maximum minimum
mish mul mvlgamma nan_to_num ne neg nextafter polar polygamma pow rad2deg reciprocal relu relu6 remainder round rsqrt rsub
selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink special_bessel_j0 special_bessel_j1
special_entr special_erfcx special_i0 special_i0e special_i1 special_i1e special_log_ndtr special_ndtri sqrt square sub tan
tanh threshold trunc where xlogy special_xlog1py special_zeta
"""

_RANDOM = """
alpha_dropout bernoulli cauchy dropout exponential feature_alpha_dropout feature_dropout geometric log_normal native_dropout
normal poisson rand_like randint_like randn_like random rrelu uniform
"""

# Their value has the axes of the first tensor; others give a dtype or numbers.
_SAME = """
alias clone contiguous copy detach empty_like fill full_like lift_fresh_copy ones_like resolve_conj resolve_neg to type_as
zero zeros_like _conj _neg_view _to_copy
"""


@rule(*_ELEMENTWISE.split(), *_RANDOM.split())
def elementwise(call: Call) -> Result:
    """Broadcast from the right; axes that are not of size 1 are the same axis."""
    result: list[Axis] = [()] * len(call.shape)
    for labels in call.tensors():
        result = call.broadcast(result, labels)
    return call.each(tuple(result))


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
