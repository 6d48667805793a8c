"""The C library's allocator: what a training step frees, the next one takes again."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names of glibc's <malloc.h>
_NEVER = 2**30

GROWTH = 1.25
"""What has been freed is given back when a process holds so many times what it usually does."""


@cache
def keep_freed_memory() -> None:
    """Have this process keep the memory that it frees, for the tensors that it makes next.

    glibc hands freed memory back to the system where it lies at the end of the heap, and takes large blocks
    from the system one by one: gradients that are made and freed in every step are then zeroed page by page,
    which can cost a third of a step. Elsewhere than on glibc this does nothing. What is kept is given back by
    ``UnusedMemory``, or when the process ends.
    """
    mallopt = _of_libc("mallopt")
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _NEVER)
        mallopt(_MMAP_THRESHOLD, _NEVER)


class UnusedMemory:
    """Gives what a process has freed and kept back to the system once it has grown by a quarter.

    For a process that lives long and frees in another order than it takes: before version 2.38 glibc seldom
    finds the freed block of an aligned tensor again, and takes new memory for the next one of the same size.
    Elsewhere than on glibc this does nothing.
    """

    def __init__(self) -> None:
        self._trim = _of_libc("malloc_trim")
        self._usual: int | None = 0  # what the process holds when it has worked since the last time

    def give_back(self) -> None:
        """Give it back if there is more than usual; to be called after each piece of like work.

        What the next piece takes costs a page fault for each page again, so that is not done every time.
        """
        if self._trim is None:
            return
        pages = _own_pages()
        if self._usual is None:
            self._usual = pages
        elif pages > GROWTH * self._usual:
            self._trim(0)
            self._usual = None


def _of_libc(name: str) -> Any:
    """Return a function of the C library, or None where there is none of this name."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _own_pages() -> int:
    """Return how many pages of memory are this process's own, neither files nor shared."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return resident - shared
