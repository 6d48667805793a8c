"""Group norm of bfloat16 images in channels-last order, compiled by numba for the CPU.

Legend: N images, P pixels (H x W), C channels, G groups of C / G channels each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

_Bits = npt.NDArray[np.uint16]
_Floats = npt.NDArray[np.float32]

_BITS, _ROWS, _ROW = "uint16[:,:,::1]", "float32[:,::1]", "float32[::1]"


def _compiled(*arguments: str) -> Any:
    # What is compiled (2 s) is kept beside this file, or else in the user's cache. Products that are
    # added at once are rounded once less.
    compiled = partial(njit, f"void({', '.join(arguments)})", fastmath={"contract"})

    def of(function: Callable[..., None]) -> Any:
        try:
            return compiled(cache=True)(function)
        except RuntimeError:  # there is no place to write to
            return compiled()(function)

    return of


@njit(inline="always")
def _float(bits: Any) -> Any:
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@njit(inline="always")
def _bfloat(value: Any) -> Any:
    """Return the bits of the nearest bfloat16, ties to even; of any NaN those of torch's."""
    bits = np.float32(value).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = np.uint32(bits + np.uint32(0x7FFF) + even) >> np.uint32(16)
    return np.uint16(0x7FC0) if value != value else np.uint16(rounded)


@_compiled(_BITS, _BITS, _ROW, _ROW, "float64", _ROWS, _ROWS)  # type: ignore[untyped-decorator]
def _forward(
    x: _Bits, y: _Bits, weight: _Floats, bias: _Floats, eps: float, mean: _Floats, scale: _Floats
) -> None:
    """Write y [N, P, C], mean and 1 / standard deviation [N, G]."""
    images, pixels, channels = x.shape
    groups = mean.shape[1]
    each = channels // groups
    one, two = np.empty(channels, np.float32), np.empty(channels, np.float32)
    for n in range(images):
        one[:] = 0.0
        two[:] = 0.0
        for p in range(pixels):
            for c in range(channels):
                value = _float(x[n, p, c])
                one[c] += value
                two[c] += value * value
        for g in range(groups):
            total, squares = 0.0, 0.0
            for c in range(g * each, (g + 1) * each):
                total += one[c]
                squares += two[c]
            average = total / (each * pixels)
            inverse = 1.0 / np.sqrt(max(squares / (each * pixels) - average * average, 0.0) + eps)
            mean[n, g], scale[n, g] = average, inverse
            for c in range(g * each, (g + 1) * each):
                one[c] = inverse * weight[c]
                two[c] = bias[c] - average * inverse * weight[c]
        for p in range(pixels):
            for c in range(channels):
                y[n, p, c] = _bfloat(one[c] * _float(x[n, p, c]) + two[c])


@_compiled(_BITS, _BITS, _BITS, _ROW, _ROWS, _ROWS, _ROW, _ROW)  # type: ignore[untyped-decorator]
def _backward(
    grad: _Bits,
    x: _Bits,
    of_x: _Bits,
    weight: _Floats,
    mean: _Floats,
    scale: _Floats,
    of_weight: _Floats,
    of_bias: _Floats,
) -> None:
    """Write the gradients.

    With M = P C / G values in a group, mean m, scale r, and t = sum(grad weight), u = sum(grad weight x)
    over them, that of x is grad weight r + (t m - u) r^3 / M (x - m) - t r / M.
    """
    images, pixels, channels = x.shape
    groups = mean.shape[1]
    each = channels // groups
    one, two = np.empty(channels, np.float32), np.empty(channels, np.float32)
    three = np.empty(channels, np.float32)
    of_weight[:] = 0.0
    of_bias[:] = 0.0
    for n in range(images):
        one[:] = 0.0
        two[:] = 0.0
        for p in range(pixels):
            for c in range(channels):
                value = _float(grad[n, p, c])
                one[c] += value
                two[c] += value * _float(x[n, p, c])
        for g in range(groups):
            average, inverse = np.float64(mean[n, g]), np.float64(scale[n, g])
            total, product = 0.0, 0.0
            for c in range(g * each, (g + 1) * each):
                total += weight[c] * one[c]
                product += weight[c] * two[c]
                of_weight[c] += (two[c] - average * one[c]) * inverse
                of_bias[c] += one[c]
            slope = (total * average - product) * inverse**3 / (each * pixels)
            for c in range(g * each, (g + 1) * each):
                one[c] = inverse * weight[c]
                two[c] = slope
                three[c] = -slope * average - total * inverse / (each * pixels)
        for p in range(pixels):
            for c in range(channels):
                value = one[c] * _float(grad[n, p, c]) + two[c] * _float(x[n, p, c])
                of_x[n, p, c] = _bfloat(value + three[c])


def _bits(images: Tensor) -> _Bits:
    """Return the memory [N, P, C] of images in channels-last order."""
    bits: _Bits = images.detach().view(torch.uint16).permute(0, 2, 3, 1).flatten(1, 2).numpy()
    return bits


def _floats(values: Tensor) -> _Floats:
    floats: _Floats = values.detach().contiguous().numpy()
    return floats


class GroupNorm(torch.autograd.Function):
    """``aten.group_norm`` of x in bfloat16 [N, C, H, W], channels last, with float32 weight and bias [C].

    Computed in float32 and rounded once. Departs from torch's kernel, which is slow where a group has fewer
    channels than a vector of the processor, in the order of sums alone.
    """

    @staticmethod
    def forward(
        x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float = 1e-5, _: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return y, and mean and 1 / standard deviation of each group, [N, G]."""
        y = torch.empty_like(x, memory_format=torch.channels_last)
        mean, scale = (torch.empty(len(x), groups) for _ in "ms")
        _forward(_bits(x), _bits(y), _floats(weight), _floats(bias), eps, _floats(mean), _floats(scale))
        return y, mean, scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep what the gradients need."""
        x, _, weight, *_ = inputs
        _, mean, scale = output
        ctx.mark_non_differentiable(mean, scale)
        ctx.save_for_backward(x, weight, mean, scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, weight and bias."""
        x, weight, mean, scale = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last)
        of_x = torch.empty_like(x, memory_format=torch.channels_last)
        of_weight, of_bias = torch.empty_like(weight), torch.empty_like(weight)
        _backward(
            _bits(grad),
            _bits(x),
            _bits(of_x),
            _floats(weight),
            _floats(mean),
            _floats(scale),
            _floats(of_weight),
            _floats(of_bias),
        )
        return of_x, None, of_weight, of_bias, None, None
