"""Arithmetic on parameter dictionaries (name -> tensor). Everything is out of place unless named ``*_``."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

Params = dict[str, Tensor]


def clone(params: Mapping[str, Tensor]) -> Params:
    """Return a deep, detached, contiguous copy."""
    return {
        name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in params.items()
    }


@torch.no_grad()
def load_(module: nn.Module, *named: Mapping[str, Tensor]) -> None:
    """Copy values into a module's parameters and buffers, by name, in place; others keep their value."""
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for tensors in named:
        for name, value in tensors.items():
            own[name].copy_(value)


def zeros_like(params: Mapping[str, Tensor]) -> Params:
    """Return zeros of the same shapes."""
    return {name: torch.zeros_like(value) for name, value in params.items()}


def squared_norm(params: Mapping[str, Tensor]) -> float:
    """Return the sum of squares over all coordinates, accumulated in float64."""
    return sum(float(value.detach().double().square().sum()) for value in params.values())


def first_non_finite(params: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor that holds a NaN or an infinity, or None."""
    for name, value in params.items():
        # A sum is non-finite as soon as one term is; only then look at every element, since a sum of
        # finite numbers may overflow.
        if not bool(value.sum().isfinite()) and not bool(value.isfinite().all()):
            return name
    return None
