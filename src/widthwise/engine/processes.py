"""What all worker processes have in common, whether they train clients or whole runs."""

from __future__ import annotations

import multiprocessing as mp
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

#: Names of the user's script: as it was started, and as a worker process that needs it imports it.
SCRIPT = ("__main__", "__mp_main__")


@contextmanager
def script_hidden(unless: bool = False) -> Iterator[None]:
    """Start processes that do not import the user's script, so that it needs no ``if __name__`` guard.

    Args:
        unless: Whether workers need something that the script defines. Then they import it, and it needs
            its guard.
    """
    script = sys.modules["__main__"]
    if not unless:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def die_with_parent() -> None:
    """End this process as soon as the one that started it is gone. Runs in a thread of its own."""
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
