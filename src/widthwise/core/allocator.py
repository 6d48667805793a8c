"""The C library's allocator: what a training step frees, the next one takes again."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names of glibc's <malloc.h>
_NEVER = 2**30


@cache
def keep_freed_memory() -> None:
    """Have this process keep the memory that it frees, for the tensors that it makes next.

    glibc hands freed memory back to the system where it lies at the end of the heap, and takes large blocks
    from the system one by one: gradients that are made and freed in every step are then zeroed page by page,
    which can cost a third of a step. Elsewhere than on glibc this does nothing. Peak memory stays what it
    was, but it is given back only when the process ends.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _NEVER)
        mallopt(_MMAP_THRESHOLD, _NEVER)
