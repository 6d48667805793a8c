"""Several tensors in one block of bytes, each where torch would put it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

ALIGNMENT = 64
"""Bytes. Where torch puts tensors: sums and products over memory at other places may round differently."""

Kind = tuple[torch.dtype, Sequence[int]]
"""Type and shape of a tensor."""


def kind_of(value: Tensor) -> Kind:
    """Return type and shape of a tensor."""
    return value.dtype, value.shape


def placed(kinds: Sequence[Kind]) -> tuple[list[int], int]:
    """Return where tensors of these kinds start in a block, in bytes, and where it ends.

    Example:
        >>> placed([(torch.float32, (2, 3)), (torch.float64, (20,))])
        ([0, 64], 256)
    """
    *starts, end = accumulate((-(-_size(kind) // ALIGNMENT) * ALIGNMENT for kind in kinds), initial=0)
    return starts, end


def seen_in(block: Tensor, starts: Sequence[int], kinds: Sequence[Kind]) -> list[Tensor]:
    """Return the tensors that lie at these places of a block (uint8, of any device)."""
    return [
        block[start : start + _size(kind)].view(kind[0]).view(kind[1])
        for start, kind in zip(starts, kinds, strict=True)
    ]


def _size(kind: Kind) -> int:
    dtype, shape = kind
    return dtype.itemsize * prod(shape)
