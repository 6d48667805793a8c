"""Atomic writes: a file is there in full, or as it was before."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from widthwise.core.errors import CheckpointError, InputError

LOCK = ".lock"


class FolderLock:
    """Lets one process at a time write a folder, from ``acquire`` to ``release``.

    The operating system holds the lock, so that of a killed process is free.

    Args:
        path: The folder; created where missing.
        what: What to call it in messages.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._path, self._what = path, what
        self._lock = FileLock(path / LOCK, timeout=0)

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            CheckpointError: if another process has it.
            InputError: if the folder cannot be written.
        """
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise CheckpointError(
                f"{self._what} is {str(self._path)!r}, but another process is writing there. "
                "Wait for it to end, or choose another --out."
            ) from None
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def release(self) -> None:
        """Let other processes write; nothing happens where the lock was never taken."""
        self._lock.release()


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, flush it to disk and put it in place.

    Raises:
        InputError: if the folder cannot be written or the disk is full; ``path`` is left as it was.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except (OSError, SafetensorError) as error:  # safetensors tells of a full disk in its own way
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: Exception) -> InputError:
    """Return the error for a path that cannot be written."""
    why = getattr(error, "strerror", None) or error
    return InputError(
        f"{str(path)!r} cannot be written ({why}), but a run must be able to save there. "
        "Free some space or choose another folder with --out."
    )


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file atomically; NaN is refused, since it is not JSON."""
    write_text(path, json.dumps(data, indent=2, allow_nan=False) + "\n")
