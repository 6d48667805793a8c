"""Memory that is used again: for messages that come one after the other, most of them of a few sizes."""

from __future__ import annotations

import weakref
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widthwise.core.blocks import Kind, placed, seen_in

Block = NDArray[np.uint8]


def fresh(size: int) -> Block:
    """Return ``size`` bytes of any content, aligned as torch aligns tensors."""
    block: Block = torch.empty(size, dtype=torch.uint8).numpy()
    return block


def tensors_in(memory: Callable[[int], Block], kinds: Mapping[str, Kind]) -> dict[str, Tensor]:
    """Return tensors of these types and shapes, of any values, one after the other in one block of memory."""
    of = list(kinds.values())
    starts, size = placed(of)
    return dict(zip(kinds, seen_in(torch.from_numpy(memory(size)), starts, of), strict=True))


def lent(block: Block, take_back: Callable[[], object]) -> Block:
    """Return a block that is taken back once neither it nor anything that was seen in it is alive."""
    own = block[:]  # an object of its own, which the tensors seen in it keep alive
    weakref.finalize(own, take_back).atexit = False
    return own


class Recycled:
    """Hands out blocks of memory, and takes one back by itself once nothing that was seen in it is alive.

    Fresh memory of some megabytes costs more than what is copied into it, and glibc before 2.38 seldom finds
    a freed aligned block again: a process that copies a report of each client would grow with every round.

    There are never more blocks than were in use at one time: where a free one is too small, a larger one
    takes its place.

    Example:
        >>> recycled = Recycled()
        >>> block = recycled(100)
        >>> values = torch.frombuffer(block, dtype=torch.float32, count=25)
        >>> place = values.data_ptr()
        >>> del block, values
        >>> torch.frombuffer(recycled(60), dtype=torch.uint8).data_ptr() == place
        True
    """

    def __init__(self) -> None:
        self._free: list[Block] = []  # the smallest first

    def __call__(self, size: int) -> Block:
        """Return at least ``size`` bytes of any content, aligned as those of ``fresh``."""
        place = bisect_left(self._free, size, key=len)
        if place < len(self._free):
            block = self._free.pop(place)
        else:
            del self._free[:1]
            block = fresh(size)
        return lent(block, partial(insort, self._free, block, key=len))
