"""Operations that torch's own kernels are slow at, computed in another way: the same to rounding.

Dropout is the same in probability: it draws other numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from widthwise.slicing.linear import linear

aten: Any = torch.ops.aten


def group_norm(
    x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, *rest: Any
) -> Tensor:
    """Return ``aten.group_norm``.

    With weights in float32, x in bfloat16 is normalised in float32 on the CPU and rounded once: torch's
    kernel for mixed types takes several times as long where groups have few channels
    (``benchmarks/hot_path.py``). On one thread, as clients train, a compiled loop does both.
    """
    made: Tensor
    if not _in_bfloat16(x, weight, bias):
        made = aten.group_norm.default(x, groups, weight, bias, *rest)
    elif weight is not None and bias is not None and _is_compiled(x, groups, weight, bias):
        # Imported here, since numba takes memory and time that others need not spend.
        from widthwise.slicing.group_norm import GroupNorm

        made = GroupNorm.apply(x, groups, weight, bias, *rest)  # type: ignore[no-untyped-call]
    else:
        made = aten.group_norm.default(x.float(), groups, weight, bias, *rest).to(x.dtype)
    return made


def max_pool2d(x: Tensor, *rest: Any) -> Tensor:
    """Return ``aten.max_pool2d(x, *rest)``.

    On the CPU the gradient that it is given is put into the order of the images: torch would bring those, the
    indices and the gradient that it returns into that one's.
    """
    pooled: Tensor = aten.max_pool2d.default(x, *rest)
    if pooled.requires_grad and x.device.type == "cpu" and _in_channels_last(x):
        pooled.register_hook(_put_in_channels_last)  # type: ignore[no-untyped-call]
    return pooled


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Return ``aten.dropout``, with other draws of the same generator.

    Torch compares a number of 53 random bits for each value, which takes longer on the CPU than what a small
    network does between two dropouts. 32 bits do: a value is dropped with p, to 2^-32.
    """
    x = input  # torch's name, by which models may give it
    dropped: Tensor
    if not (train and 0 < p < 1 and x.device.type == "cpu" and x.is_floating_point() and _is_plain(x)):
        dropped = aten.dropout.default(x, p, train)
        return dropped
    count = x.numel()
    bound = min(round((1 - p) * 2**32), 2**32 - 1) - 2**31  # of a signed number
    bits = torch.empty(ceil(count / 2), dtype=torch.int64).random_(-(2**63), None).view(torch.int32)[:count]
    factors = torch.empty_like(x)  # 0 or 1 / (1 - p), in the order of the memory of x
    torch.lt(bits, bound, out=factors.as_strided((count,), (1,)))
    return x * factors.div_(1 - p)


def _put_in_channels_last(gradient: Tensor) -> Tensor:
    functorch = torch._C._functorch
    if functorch.is_legacy_batchedtensor(gradient) or functorch.is_functorch_wrapped_tensor(gradient):
        return gradient  # a batch of gradients has an order of its own
    return gradient.contiguous(memory_format=torch.channels_last)


def _in_bfloat16(x: Tensor, *affine: Tensor | None) -> bool:
    floats = all(one is None or one.dtype is torch.float32 for one in affine)
    return x.dtype is torch.bfloat16 and x.device.type == "cpu" and floats


def _is_compiled(x: Tensor, groups: int, weight: Tensor, bias: Tensor) -> bool:
    """Return whether the loop takes these; torch refuses what fits nobody."""
    channels = x.shape[1]
    fits = groups > 0 and channels % groups == 0 and weight.shape == bias.shape == (channels,)
    return fits and x.numel() > 0 and torch.get_num_threads() == 1 and _in_channels_last(x)


def _in_channels_last(x: Tensor) -> bool:
    return _is_plain(x) and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)


def _is_plain(x: Tensor) -> bool:
    """Return whether a tensor is itself, and nobody transforms or records what is done to it."""
    return type(x) is Tensor and not (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch._C._functorch.peek_interpreter_stack()
        or torch._C._len_torch_dispatch_stack()
    )


class DrawnAlike(TorchFunctionMode):
    """While it is active a model itself draws what its sub-models draw from the same generator."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``dropout`` for torch's."""
        kwargs = kwargs or {}
        if func is torch.nn.functional.dropout:
            given = inspect.signature(func).bind(*args, **kwargs)
            given.apply_defaults()
            x, p, training, inplace = given.arguments.values()
            return func(*args, **kwargs) if inplace else dropout(x, p, training)
        return dropout(*args, **kwargs) if func is torch.dropout else func(*args, **kwargs)


KERNELS: dict[str, Callable[..., Any]] = {
    "aten.dropout.default": dropout,
    "aten.group_norm.default": group_norm,
    "aten.linear.default": linear,
    "aten.max_pool2d.default": max_pool2d,
}
