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
from torch.autograd.function import once_differentiable

_Bits = npt.NDArray[np.uint16]
_Floats = npt.NDArray[np.float32]

_IMAGES, _STATISTICS, _CHANNELS = "uint16[:,:,::1]", "float32[:,::1]", "float32[::1]"


def _compiled(*arguments: str) -> Any:
    # What is compiled (2 s) is kept beside this file, or else in the user's cache. A product that is added
    # at once is not rounded before.
    signature = f"void({', '.join(arguments)})"
    compiled = partial(njit, signature, fastmath={"contract"}, error_model="numpy")

    def of(function: Callable[..., None]) -> Any:
        try:
            return compiled(cache=True)(function)
        except Exception:  # no place to write to, a full disk, a damaged file: for this process alone
            return compiled()(function)

    return of


@njit(inline="always")
def _widened(bits: Any) -> Any:
    """Return the float32 of a bfloat16."""
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@njit(inline="always")
def _rounded(value: Any) -> Any:
    """Return the bits of the nearest bfloat16, ties to even; of any NaN those of torch's."""
    bits = np.float32(value).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = np.uint32(bits + np.uint32(0x7FFF) + even) >> np.uint32(16)
    return np.uint16(0x7FC0) if value != value else np.uint16(rounded)


@_compiled(  # type: ignore[untyped-decorator]
    _IMAGES, _IMAGES, _CHANNELS, _CHANNELS, "float64", _STATISTICS, _STATISTICS
)
def _forward(
    x: _Bits, y: _Bits, weight: _Floats, bias: _Floats, eps: float, mean: _Floats, scale: _Floats
) -> None:
    """Write y [N, P, C], mean and 1 / standard deviation [N, G].

    Values are summed as differences from their channel's first one, which loses no digits where they are
    large and alike.
    """
    images, pixels, channels = x.shape
    groups = mean.shape[1]
    each = channels // groups
    first, sums, squares, center, slope = np.empty((5, channels), np.float32)
    for n in range(images):
        for c in range(channels):
            first[c] = _widened(x[n, 0, c])
        sums[:] = 0.0
        squares[:] = 0.0
        for p in range(pixels):
            for c in range(channels):
                value = _widened(x[n, p, c]) - first[c]
                sums[c] += value
                squares[c] += value * value
        for g in range(groups):
            average, variance = 0.0, 0.0
            for c in range(g * each, (g + 1) * each):
                average += (sums[c] / pixels + first[c]) / each
            for c in range(g * each, (g + 1) * each):
                apart = first[c] - average
                variance += (squares[c] + 2 * apart * sums[c]) / (each * pixels) + apart * apart / each
            inverse = 1.0 / np.sqrt(max(variance, 0.0) + eps)
            mean[n, g], scale[n, g] = average, inverse
            for c in range(g * each, (g + 1) * each):
                center[c] = average
                slope[c] = inverse * weight[c]
        for p in range(pixels):
            for c in range(channels):
                y[n, p, c] = _rounded(slope[c] * (_widened(x[n, p, c]) - center[c]) + bias[c])


@_compiled(  # type: ignore[untyped-decorator]
    _IMAGES, _IMAGES, _IMAGES, _CHANNELS, _STATISTICS, _STATISTICS, _CHANNELS, _CHANNELS
)
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

    With M = P C / G values in a group, mean m, scale r, and over them t = sum(grad weight) and
    u = sum(grad weight (x - m)), that of x is grad weight r - u r^3 / M (x - m) - t r / M.
    """
    images, pixels, channels = x.shape
    groups = mean.shape[1]
    each = channels // groups
    sums, products, center, slope, curve, offset = np.empty((6, channels), np.float32)
    of_weight[:] = 0.0
    of_bias[:] = 0.0
    for n in range(images):
        for c in range(channels):
            center[c] = mean[n, c // each]
        sums[:] = 0.0
        products[:] = 0.0
        for p in range(pixels):
            for c in range(channels):
                value = _widened(grad[n, p, c])
                sums[c] += value
                products[c] += value * (_widened(x[n, p, c]) - center[c])
        for g in range(groups):
            inverse = np.float64(scale[n, g])
            total, product = 0.0, 0.0
            for c in range(g * each, (g + 1) * each):
                total += weight[c] * sums[c]
                product += weight[c] * products[c]
                of_weight[c] += products[c] * inverse
                of_bias[c] += sums[c]
            for c in range(g * each, (g + 1) * each):
                slope[c] = inverse * weight[c]
                curve[c] = -product * inverse**3 / (each * pixels)
                offset[c] = -total * inverse / (each * pixels)
        for p in range(pixels):
            for c in range(channels):
                value = curve[c] * (_widened(x[n, p, c]) - center[c]) + offset[c]
                of_x[n, p, c] = _rounded(slope[c] * _widened(grad[n, p, c]) + value)


def _memory(images: Tensor) -> _Bits:
    """Return the memory [N, P, C] of images in channels-last order."""
    bits: _Bits = images.detach().view(torch.uint16).permute(0, 2, 3, 1).flatten(1, 2).numpy()
    return bits


def _array(values: Tensor) -> _Floats:
    array: _Floats = values.detach().contiguous().numpy()
    return array


class GroupNorm(torch.autograd.Function):
    """``aten.group_norm`` of x in bfloat16 [N, C, H, W], channels last, with float32 weight and bias [C].

    Computed in float32 and rounded once; sums over groups are taken in float64. Departs from torch's kernel
    by rounding.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float = 1e-5, _: bool = False
    ) -> Tensor:
        """Return y."""
        y = torch.empty_like(x, memory_format=torch.channels_last)
        mean, scale = weight.new_empty(len(x), groups), weight.new_empty(len(x), groups)
        _forward(_memory(x), _memory(y), _array(weight), _array(bias), eps, _array(mean), _array(scale))
        ctx.save_for_backward(x, weight, mean, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, weight and bias."""
        x, weight, mean, scale = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last)
        of_x = torch.empty_like(x, memory_format=torch.channels_last)
        of_weight, of_bias = weight.new_empty(weight.shape), weight.new_empty(weight.shape)
        _backward(
            _memory(grad),
            _memory(x),
            _memory(of_x),
            _array(weight),
            _array(mean),
            _array(scale),
            _array(of_weight),
            _array(of_bias),
        )
        return of_x, None, of_weight, of_bias, None, None
