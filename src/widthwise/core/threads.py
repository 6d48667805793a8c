"""Control over torch's threads inside one operation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the block on one thread; the former number comes back afterwards.

    The bits of a sum depend on how it is split over threads. What must be equal on every executor and for
    every number of cores therefore runs on one.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
