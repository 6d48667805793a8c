"""Arithmetic on parameter dictionaries (name -> tensor). Everything is out of place unless named ``*_``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

Params = dict[str, Tensor]

PIECE = 2**15
"""Numbers of each of a few tensors that stay in a core's cache from one operation to the next."""


def clone(params: Mapping[str, Tensor]) -> Params:
    """Return a deep, detached, contiguous copy."""
    return {
        name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in params.items()
    }


def pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield flat pieces of contiguous tensors of one shape, to do with each piece all that there is to do.

    Several operations on large tensors would each read them from memory again.

    Example:
        >>> total = torch.ones(3, 2)
        >>> for some, others in pieces(total, torch.full((3, 2), 8.0)):
        ...     _ = some.add_(others).sqrt_()
        >>> total.sum().item()
        18.0
    """
    size = PIECE * torch.get_num_threads()  # each of which takes a part
    return zip(*(torch.split(value.view(-1), size) for value in tensors), strict=True)


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


def sum_dtype(update: Tensor) -> torch.dtype:
    """Return the dtype in which a few updates are summed: their own, but float32 at least.

    An update is the difference of two numbers that are larger than it, and carries the rounding of those:
    sums of a few in its own dtype add less to that.
    """
    return torch.promote_types(update.dtype, torch.float32)


def first_non_finite(params: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor that holds a NaN or an infinity, or None."""
    for name, value in params.items():
        # A sum is non-finite as soon as one term is; only then look at every element, since a sum of
        # finite numbers may overflow.
        if not bool(value.sum().isfinite()) and not bool(value.isfinite().all()):
            return name
    return None
