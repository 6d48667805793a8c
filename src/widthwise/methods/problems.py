"""Turns what pydantic says about a bad configuration into messages in this project's form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from widthwise.core.errors import InputError


def unknown_key(path: str, value: object, known: Iterable[str], hint: str = "") -> str:
    """Return the message for a key that does not exist: the nearest known one first, then all of them.

    Args:
        path: Dotted path of the key.
        value: What was written under it.
        known: Names that are allowed beside it (without the path).
        hint: What to say where no known name is near, for example where the key belongs.

    Example:
        >>> unknown_key("training.lrr", 0.1, ["lr", "rounds"])
        "training.lrr is 0.1, but there is no such key. Did you mean 'training.lr'? Known: lr, rounds."
    """
    names = sorted(known)
    parent, _, leaf = path.rpartition(".")
    near = get_close_matches(leaf, names, n=1, cutoff=0.6)
    if near:
        hint = f"Did you mean {(f'{parent}.' if parent else '') + near[0]!r}?"
    return " ".join(
        part
        for part in (f"{path} is {value!r}, but there is no such key.", hint, f"Known: {', '.join(names)}.")
        if part
    )


def problems(error: ValidationError, model: Any, prefix: Sequence[str] = ()) -> list[str]:
    """Return one message for each problem that pydantic found.

    Args:
        error: What pydantic raised.
        model: The model class that was validated (to name the keys that are known).
        prefix: Path of the model inside the whole configuration.
    """
    return [_message(detail, model, prefix) for detail in error.errors()]


def _message(detail: Any, model: Any, prefix: Sequence[str]) -> str:
    location = [str(step) for step in detail["loc"]]
    path = ".".join([*prefix, *location])
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, InputError):  # raised by one of our validators: already in the right form
        return str(cause)
    if detail["type"] == "extra_forbidden":
        return unknown_key(path, detail["input"], _fields_at(model, detail["loc"][:-1]))
    if detail["type"] == "missing":
        return f"{path} is missing, but it is required. Add it."
    if isinstance(cause, ValueError):
        return f"{path}: {cause}" if path else str(cause)
    rule = detail["msg"][0].lower() + detail["msg"][1:]
    return f"{path} is {detail['input']!r}, but {rule.replace('input should', 'it should')}. Change it."


def _fields_at(model: Any, location: Sequence[str | int]) -> list[str]:
    for step in location:
        field = getattr(model, "model_fields", {}).get(step)
        if field is None:
            return []
        candidates = [field.annotation, *getattr(field.annotation, "__args__", ())]
        model = next((c for c in candidates if hasattr(c, "model_fields")), None)
    return list(getattr(model, "model_fields", {}))
