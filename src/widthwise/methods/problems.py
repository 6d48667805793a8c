"""Turns what pydantic says about a bad configuration into messages in this project's form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import Tag, ValidationError

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
    # A default that follows from another value is not made where that one is wrong: no mistake of its own.
    own = [detail for detail in error.errors() if detail["type"] != "default_factory_not_called"]
    return [_message(detail, model, prefix) for detail in own]


def _message(detail: Any, model: Any, prefix: Sequence[str]) -> str:
    steps, known = _walk(model, detail["loc"])
    path = ".".join([*prefix, *steps])
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, InputError):  # raised by one of our validators: already in the right form
        return str(cause)
    if isinstance(cause, ValueError):
        return f"{path}: {cause}" if path else str(cause)
    if detail["type"] == "extra_forbidden":
        if len(steps) == 1 and (block := _block_with(model, steps[0])):
            place = ".".join([*prefix, block, *steps])
            return f"{path} is {detail['input']!r}, but that key belongs into a block. Write {place}."
        return unknown_key(path, detail["input"], known)
    if detail["type"] == "missing":
        return f"{path} is missing, but it is required. Add it."
    if detail["type"] == "too_short":
        least = detail["ctx"]["min_length"]
        needs = f"it needs at least {least} {'entry' if least == 1 else 'entries'}"
        return f"{path} is {detail['input']!r}, but {needs}. Add what is missing."
    if detail["loc"][-1] == "[key]":
        return f"key of {'.'.join(steps[:-2])} is {detail['input']!r}, but keys are text. Put it in quotes."
    rule = detail["msg"]
    for theirs, ours in (
        ("Input should", "it should"),
        ("a valid dictionary", "a mapping"),
        ("a valid list", "a list"),
    ):
        rule = rule.replace(theirs, ours)
    return f"{path} is {detail['input']!r}, but {rule}. Change it."


def _walk(model: Any, location: Sequence[str | int]) -> tuple[list[str], list[str]]:
    """Follow a location into a model: the keys that a user would write, and the names known at its end.

    Where the type is a union, pydantic puts the chosen member's tag or class name into the location; users
    do not write it.
    """
    steps: list[str] = []
    known: list[str] = []
    here: list[tuple[str | None, Any]] = [(None, model)]
    plain: set[str] = set()
    for step in location:
        inside = [member for _, member in here if step in member.model_fields]
        chosen: list[tuple[str | None, Any]] = [
            (None, member) for tag, member in here if step in (tag, member.__name__)
        ]
        if inside:
            steps.append(str(step))
            known = list(inside[0].model_fields)
            annotation = inside[0].model_fields[step].annotation
            here = list(_members(annotation))
            plain = {member.__name__ for member in get_args(annotation) if isinstance(member, type)}
        elif chosen:
            here = chosen
        elif step in plain:  # a member of the union that is no model, such as str
            continue
        else:  # an index, a key of a free mapping, or a key that does not exist
            steps.append(str(step))
            known = list(here[0][1].model_fields) if here else known
    return steps, known


def _block_with(model: Any, key: str) -> str | None:
    """Return the block of a model that has a key; blocks of a mapping have names that nobody can guess."""
    for name, field in model.model_fields.items():
        blocks = () if get_origin(field.annotation) is dict else _members(field.annotation)
        if any(key in member.model_fields for _, member in blocks):
            return str(name)
    return None


def _members(annotation: Any, tag: str | None = None) -> Iterator[tuple[str | None, Any]]:
    """Yield (tag, model class) for every model inside an annotation."""
    if hasattr(annotation, "model_fields"):
        yield tag, annotation
    arguments = get_args(annotation)
    inner = next((argument.tag for argument in arguments if isinstance(argument, Tag)), tag)
    for argument in arguments:
        yield from _members(argument, inner)
