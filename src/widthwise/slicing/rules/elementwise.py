"""Operations that work position by position: every axis goes through, and equal axes are one axis."""

from __future__ import annotations

from widthwise.slicing.axes import Axis, pin, resolve
from widthwise.slicing.rules.base import Call, Labels, Result, rule

# ruff: noqa: E501
_NAMES = """
abs add addcdiv addcmul alias alpha_dropout atan2 bernoulli bitwise_and bitwise_not bitwise_or celu ceil clamp clamp_max clamp_min
clone contiguous copy cos detach div dropout elu eq erf exp expm1 feature_alpha_dropout feature_dropout fill floor floor_divide ge gelu gt
hardsigmoid hardswish hardtanh isnan isinf le leaky_relu lerp lift_fresh_copy log log1p log2 log_sigmoid  logical_and
logical_not logical_or lt masked_fill maximum minimum mish mul ne neg nan_to_num ones_like pow rand_like randn_like reciprocal relu relu6 remainder
round rsqrt rsub selu sigmoid sign silu sin  softplus softshrink sqrt square sub tanh threshold to true_divide trunc type_as where
xlogy zero zeros_like _to_copy full_like empty_like
"""


@rule(*_NAMES.split())
def elementwise(call: Call) -> Labels:
    """Broadcast from the right; axes that are not of size 1 are the same axis."""
    rank = len(call.shape)
    result: list[Axis] = [()] * rank
    for labels in call.tensors():
        for dim, axis in enumerate(labels, start=rank - len(labels)):
            if not resolve(axis):
                continue
            if resolve(result[dim]):
                call.unify(result[dim], axis)
            result[dim] = axis
    return tuple(result)


@rule("softmax", "log_softmax")
def softmax(call: Call) -> Labels:
    """Along a cut axis it is one over the kept positions."""
    x: Labels = call["self"]
    call.mixed.append(x[call.dim("dim", len(x))])
    return tuple(x)


@rule("cumsum", "cumprod", "logcumsumexp", "sort", "argsort", "cummax", "cummin")
def cumulative(call: Call) -> Result:
    """What stands at a position depends on the other positions of the axis, which therefore stays whole."""
    x: Labels = call["self"]
    pin(x[call.dim("dim", len(x))])
    return [tuple(x)] * len(call.step.shape) if isinstance(call.step.shape, list) else tuple(x)


@rule("prelu")
def prelu(call: Call) -> Labels:
    """One slope per channel (axis 1), or one for all."""
    x, (slopes,) = call["self"], call["weight"]
    if resolve(slopes):
        call.unify(x[1], slopes)
    return tuple(x)
