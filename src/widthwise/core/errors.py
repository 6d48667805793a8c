"""Errors that users see. Each message says what is wrong, the rule it breaks and the one thing to do.

``InputError`` and its children mean bad input (exit code 2); all others mean that something that was started
well has failed (exit code 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class WidthwiseError(Exception):
    """Base of all errors that widthwise raises on purpose."""


class InputError(WidthwiseError, ValueError):
    """Something the user gave is wrong; nothing has been written."""


class ConfigError(InputError):
    """A configuration has an unknown key, an unknown name or a value out of its range."""


class DataError(InputError):
    """A data set is missing, damaged or does not have the columns or values it must have."""


class TraceError(InputError):
    """A model contains an operation whose channels cannot be followed."""


class SliceError(InputError):
    """A width or a slice spec does not fit the width space."""


class CheckpointError(InputError):
    """A run folder or checkpoint is damaged, foreign or belongs to another configuration."""


class RunError(WidthwiseError, RuntimeError):
    """A run failed. ``client``, ``round_index`` and ``stage`` say where."""

    def __init__(
        self,
        reason: str,
        *,
        client: int | None = None,
        round_index: int | None = None,
        stage: str | None = None,
    ) -> None:
        self.reason, self.client, self.round_index, self.stage = reason, client, round_index, stage
        places = (
            ("client", client),
            ("round", round_index),
            ("stage", stage),
        )
        where = ", ".join(f"{name} {value}" for name, value in places if value is not None)
        super().__init__(f"{where}: {reason}" if where else reason)


class ExportError(WidthwiseError, RuntimeError):
    """An exported file does not give what the sub-model gives; it has not been kept."""


class DivergenceError(RunError):
    """A loss, an update or a parameter is no longer finite."""


def some(texts: Sequence[str], most: int) -> str:
    """Return so many of the texts, and how many more there are.

    Example:
        >>> some(["a", "b", "c"], 2), some(["a"], 2)
        ('a, b and 1 more', 'a')
    """
    rest = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + rest


def unknown_name(what: str, name: object, known: Iterable[str]) -> str:
    """Return the message for an unknown name: the nearest known one first, then all of them.

    Example:
        >>> unknown_name("method", "fedavgg", ["fedavg", "hasfl"])
        "method is 'fedavgg', but no such name is known. Did you mean 'fedavg'? Known: fedavg, hasfl."
    """
    names = sorted(known)
    near = get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{what} is {name!r}, but no such name is known.{hint} Known: {', '.join(names)}."
