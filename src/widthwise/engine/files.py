"""Atomic writes: a file is there in full, or as it was before."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from widthwise.core.errors import InputError


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
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> InputError:
    """Return the error for a path that cannot be written."""
    return InputError(
        f"{str(path)!r} cannot be written ({error.strerror or error}), but a run must be able to save there. "
        "Free some space or choose another folder with --out."
    )


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file atomically; NaN is refused, since it is not JSON."""
    write_text(path, json.dumps(data, indent=2, allow_nan=False) + "\n")
