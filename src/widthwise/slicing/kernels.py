"""Operations that torch's own kernels are slow at, computed in another way: the same to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def group_norm(x: Tensor, *rest: Any) -> Tensor:
    """Return ``aten.group_norm(x, *rest)``.

    In bfloat16 on the CPU it is computed in float32 and rounded once: torch's kernel for mixed types takes
    several times as long, above all its backward pass (``benchmarks/hot_path.py``).
    """
    if x.dtype is not torch.bfloat16 or x.device.type != "cpu":
        return torch.ops.aten.group_norm.default(x, *rest)  # type: ignore[no-any-return]
    return torch.ops.aten.group_norm.default(x.float(), *rest).to(x.dtype)  # type: ignore[no-any-return]


KERNELS: dict[str, Callable[..., Any]] = {"aten.group_norm.default": group_norm}
