"""What a reply must be to count. It is checked in full before anything of it is used."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode

from widthwise.compression import Compression
from widthwise.core.errors import SliceError
from widthwise.core.params import Params, first_non_finite, squared_norm
from widthwise.core.records import ClientReport
from widthwise.deploy.wire import RAW, REPORT, STATE, UPDATE, read_report, reported
from widthwise.engine.round import Assignment
from widthwise.slicing import WidthSpace

COUNTS = {"client", "round", "examples", "steps", "received"}
"""The whole numbers of a report."""

LONGEST_REASON = 300
"""Characters of what a node says that are logged."""


@dataclass(frozen=True)
class Bounds:
    """What is accepted.

    Attributes:
        space: Knows the shapes of each slice.
        states: Names of the objective's states that clients report increments of.
        max_examples: The most samples that a client may say it has.
        max_norm: The largest L2 norm of an update; None: any.
        max_state_norm: The largest L2 norm of each increment; None: any.
        compression: How reports are compressed, if they are.
    """

    space: WidthSpace
    states: tuple[str, ...]
    max_examples: int
    max_norm: float | None
    max_state_norm: float | None
    compression: Compression | None = None


@dataclass(frozen=True)
class Rejection:
    """Why something that a node has sent does not count.

    Attributes:
        kind: One word, by which such cases are counted.
        reason: What was wrong, in one line.
    """

    kind: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", printable(self.reason))


def printable(text: str) -> str:
    """Return what a node says as one line of bounded length: it goes into logs.

    Example:
        >>> printable("it   broke " + chr(10) + "badly" + chr(27))
        'it broke badly'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:LONGEST_REASON]


class _Refused(Exception):
    """Carries a rejection out of the checks."""


def check_reply(assignment: Assignment, reply: Message, bounds: Bounds) -> ClientReport | Rejection:
    """Return the report that a reply holds, or why it does not count.

    The records must be those of a report and no others; client and round those that were asked; names,
    order-free, types and shapes of the tensors those of the slice that was assigned, or of its compressed
    form; all numbers finite; samples and steps positive integers, the samples at most
    ``bounds.max_examples``; norms at most ``bounds.max_norm``. Nothing is computed with a tensor whose size
    has not been checked. Pure.

    Args:
        assignment: What the client was asked.
        reply: What came back.
        bounds: What is accepted.
    """
    if reply.has_error():
        return Rejection(*_failure(reply.error))
    try:
        return _report(assignment, reply.content, bounds)
    except _Refused as refused:
        return Rejection(*refused.args)


def _failure(error: Error) -> tuple[str, str]:
    kinds = {
        ErrorCode.NODE_UNAVAILABLE: "offline",
        ErrorCode.MESSAGE_UNAVAILABLE: "expired",
        ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "expired",
    }
    return kinds.get(error.code, "error"), reason_of(error)


def reason_of(error: Error) -> str:
    """Return why an app failed, an exception as Python writes it instead of as Flower does.

    Example:
        >>> reason_of(Error(203, "<class 'widthwise.core.errors.ConfigError'>:<'capacity is 2.'>"))
        'ConfigError: capacity is 2.'
    """
    reason = error.reason or "no reason given"
    raised = re.fullmatch(r"<class '(?:\w+\.)*(\w+)'>:<'(.*)'>", reason, re.DOTALL)
    return f"{raised[1]}: {raised[2]}" if raised else reason


def _report(assignment: Assignment, content: RecordDict, bounds: Bounds) -> ClientReport:
    kinds: dict[str, type] = {REPORT: MetricRecord, UPDATE: ArrayRecord}
    kinds.update({STATE + name: ArrayRecord for name in bounds.states})
    _same_names("records", dict(content), kinds)
    for name, kind in kinds.items():
        if not isinstance(content[name], kind):
            raise _Refused("records", f"record {name} is no {kind.__name__}")
    numbers = _numbers(dict(content.metric_records[REPORT]), assignment, bounds)
    expected = reported(bounds.space, assignment.spec, bounds.compression)
    groups: dict[str, Params] = {}
    for key, record in content.array_records.items():
        _check_arrays(key, record, expected)
        try:
            groups[key] = read_report(record, bounds.space, assignment.spec, bounds.compression)
        except SliceError as error:
            raise _Refused("shape", f"{key}: {error}") from None
        if bad := first_non_finite(groups[key]):
            raise _Refused("non-finite", f"{key} of {bad} holds a NaN or an infinity")
        option = "max_norm" if key == UPDATE else "max_state_norm"
        limit, norm = getattr(bounds, option), math.sqrt(squared_norm(groups[key]))
        if limit is not None and norm > limit:
            raise _Refused("norm", f"the norm of {key} is {norm:.4g}, above deploy.{option} {limit:g}")
    return ClientReport(
        client_id=assignment.client_id,
        round_index=assignment.round_index,
        spec=assignment.spec,
        delta=groups.pop(UPDATE),
        num_examples=numbers["examples"],
        num_steps=numbers["steps"],
        metrics={"loss": numbers["loss"]},
        state={name: groups[STATE + name] for name in bounds.states},
    )


def _numbers(numbers: Mapping[str, Any], assignment: Assignment, bounds: Bounds) -> dict[str, Any]:
    _same_names("numbers", numbers, COUNTS | {"loss"})
    for name in sorted(COUNTS):
        if type(numbers[name]) is not int:
            raise _Refused("numbers", f"{name} is {_brief(numbers[name])}, no whole number")
    if (numbers["client"], numbers["round"]) != (assignment.client_id, assignment.round_index):
        raise _Refused("round", f"it answers for client {numbers['client']}, round {numbers['round']}")
    if not 0 < numbers["examples"] <= bounds.max_examples:
        raise _Refused("examples", f"it says {numbers['examples']} samples, not 1 to {bounds.max_examples}")
    if numbers["steps"] < 1:
        raise _Refused("numbers", f"it says {numbers['steps']} steps, but at least 1 was asked")
    if not (isinstance(numbers["loss"], float) and math.isfinite(numbers["loss"])):
        raise _Refused("non-finite", f"the loss is {_brief(numbers['loss'])}, no finite number")
    return dict(numbers)


def _check_arrays(
    key: str, record: Mapping[str, Array], expected: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]
) -> None:
    _same_names(key, record, expected)
    for name, (dtype, shape) in expected.items():
        array, kind = record[name], str(dtype).removeprefix("torch.")
        if (array.dtype, array.stype) != (kind, RAW):
            raise _Refused(
                "dtype", f"{key} of {name} is {array.dtype!r:.40} ({array.stype!r:.40}), not raw {kind}"
            )
        if tuple(array.shape) != tuple(shape):
            raise _Refused("shape", f"{key} of {name} has shape {_brief(array.shape)}, not {tuple(shape)}")
        if len(array.data) != dtype.itemsize * math.prod(shape):
            raise _Refused("shape", f"{key} of {name} has {len(array.data)} bytes for shape {tuple(shape)}")


def _same_names(what: str, found: Mapping[str, Any], expected: Any) -> None:
    if odd := sorted(set(found) ^ set(expected)):
        names = ", ".join(name if len(name) < 60 else f"{name[:60]}..." for name in odd[:3])
        raise _Refused("records", f"{what} differ from those that were asked in {names}")


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:60]}..."
