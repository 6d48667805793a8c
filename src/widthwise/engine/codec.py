"""Records to messages and back, without pickle: the bytes of tensors, and then JSON that describes them.

Nothing that a peer sends is executed, and what is sent is what is counted. A message can be written straight
into memory that another process reads; tensors that lie there already, at their places, are not copied.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from widthwise.core.blocks import kind_of, placed, seen_in
from widthwise.core.params import Params
from widthwise.core.records import Answer, ClientReport, CompressedReport, Mask, SliceSpec, SummedReports
from widthwise.core.recycled import Block, fresh

_LENGTH = struct.Struct("<Q")
"""At the end of a message: how long the JSON before it is."""

Memory = bytearray | memoryview
"""What a message lies in: writable, so that tensors can be seen in it."""


def spec_to_json(spec: SliceSpec) -> dict[str, Any]:
    """Return a JSON-able form: a range as ``[start, stop]``, other indices as a list under ``indices``."""
    return {
        "width": spec.width,
        "kept": {
            g: [k.start, k.stop] if isinstance(k, range) and k.step == 1 else {"indices": list(k)}
            for g, k in spec.kept.items()
        },
    }


def spec_from_json(data: Mapping[str, Any]) -> SliceSpec:
    """Return the spec of ``spec_to_json``."""
    return SliceSpec(
        float(data["width"]),
        {g: range(*k) if isinstance(k, list) else tuple(k["indices"]) for g, k in data["kept"].items()},
    )


def pack(
    header: Mapping[str, Any], groups: Mapping[str, Mapping[str, Tensor]], into: memoryview | None = None
) -> Memory:
    """Return header and named groups of tensors as one message.

    Args:
        header: JSON-able.
        groups: Tensors by group and name.
        into: Writable memory for the message; it gets its own where there is too little or none.
    """
    # A list, since sums over parameters must run in one order everywhere.
    places = {
        group: [(name, _name(value.dtype), tuple(value.shape)) for name, value in tensors.items()]
        for group, tensors in groups.items()
    }
    head = json.dumps({**header, "groups": places}).encode()
    flat = [value for tensors in groups.values() for value in tensors.values()]
    kinds = list(map(kind_of, flat))
    starts, end = placed(kinds)
    size = end + len(head) + _LENGTH.size
    message: Memory = into[:size] if into is not None and len(into) >= size else bytearray(size)
    memory = _bytes(message)
    inside = range(memory.data_ptr(), memory.data_ptr() + size)
    moves = [
        # What lies elsewhere in the message would be written over before it is copied.
        (place, value.clone() if value.data_ptr() in inside else value)
        for place, value in zip(seen_in(memory, starts, kinds), flat, strict=True)
        if place.data_ptr() != value.data_ptr()
    ]
    for place, value in moves:
        place.copy_(value)
    message[end : end + len(head)] = head
    _LENGTH.pack_into(message, end + len(head), len(head))
    return message


def read_header(data: Memory) -> dict[str, Any]:
    """Return the header of ``pack``, with the kinds of the tensors of each group."""
    end = len(data) - _LENGTH.size
    (size,) = _LENGTH.unpack_from(data, end)
    header: dict[str, Any] = json.loads(bytes(data[end - size : end]))
    return header


def unpack(
    data: Memory, memory: Callable[[int], Block] | None = fresh
) -> tuple[dict[str, Any], dict[str, Params]]:
    """Return header and groups of ``pack``, tensors in the order in which they were packed.

    Args:
        data: The message.
        memory: Gives the block to which tensors are copied: in a message they start where its memory lets
            them, and vectorised sums and products round differently on differently aligned memory. None where
            that is aligned as torch does: then they stay in the message.
    """
    header = read_header(data)
    groups = header.pop("groups")
    kinds = [(getattr(torch, kind), shape) for tensors in groups.values() for _, kind, shape in tensors]
    starts, size = placed(kinds)
    block = _bytes(data)[:size]
    if memory is not None:
        block = torch.from_numpy(memory(size))[:size].copy_(block)
    values = iter(seen_in(block, starts, kinds))
    return header, {
        group: {name: next(values) for name, _, _ in tensors} for group, tensors in groups.items()
    }


def _bytes(memory: Memory) -> Tensor:
    return torch.frombuffer(memory, dtype=torch.uint8)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def encode_report(report: ClientReport, into: memoryview | None = None) -> Memory:
    """Return a report as a message (see ``pack``)."""
    header = {"spec": spec_to_json(report.spec), **_members([report])[0]}
    groups = _dictionaries(report)
    if mask := report.spec.mask:
        header["thresholds"] = dict(mask.thresholds)
        groups["mask"] = mask.kept
    return pack(header, groups, into)


def decode_report(data: Memory, memory: Callable[[int], Block] | None = fresh) -> ClientReport:
    """Return the report of ``encode_report``, its tensors in ``memory`` (see ``unpack``)."""
    header, groups = unpack(data, memory)
    spec = spec_from_json(header.pop("spec"))
    if "mask" in groups:
        spec = replace(spec, mask=Mask(groups.pop("mask"), header.pop("thresholds")))
    return ClientReport(spec=spec, **_fields(groups), **header)


def encode_compressed(reports: Sequence[CompressedReport], into: memoryview | None = None) -> Memory:
    """Return compressed reports as one message (see ``pack``)."""
    groups = {
        f"{k}.{name}": pieces
        for k, report in enumerate(reports)
        for name, pieces in _dictionaries(report).items()
    }
    return pack({"compressed": _members(reports)}, groups, into)


def decode_compressed(data: Memory, memory: Callable[[int], Block] | None = fresh) -> list[CompressedReport]:
    """Return the reports of ``encode_compressed``, their tensors in ``memory`` (see ``unpack``)."""
    header, groups = unpack(data, memory)
    own: list[dict[str, Params]] = [{} for _ in header["compressed"]]
    for key, pieces in groups.items():
        k, _, name = key.partition(".")
        own[int(k)][name] = pieces
    members = zip(own, header["compressed"], strict=True)
    return [CompressedReport(**_fields(dictionaries), **one) for dictionaries, one in members]


def _dictionaries(report: ClientReport | CompressedReport) -> dict[str, Mapping[str, Tensor]]:
    return {"delta": report.delta, **{f"state.{name}": tensors for name, tensors in report.state.items()}}


def _fields(groups: Mapping[str, Params]) -> dict[str, Any]:
    """Return the fields that ``_dictionaries`` was made of."""
    state = {name.removeprefix("state."): tensors for name, tensors in groups.items() if name != "delta"}
    return {"delta": groups["delta"], "state": state}


def encode_answers(answers: Sequence[Answer], into: memoryview | None = None) -> Memory:
    """Return what a stack answers as one message: a report, a sum, or reports without states and masks.

    Compressed reports travel as they are, with states where there are any.
    """
    first = answers[0]
    if isinstance(first, CompressedReport):
        return encode_compressed([one for one in answers if isinstance(one, CompressedReport)], into)
    if isinstance(first, SummedReports):
        columns = {name: getattr(first, name) for name in ("weight", "client_ids", "num_examples", "losses")}
        return pack({"spec": spec_to_json(first.spec), "sum": columns}, {"total": first.total}, into)
    if len(answers) == 1:
        return encode_report(first, into)
    reports = [answer for answer in answers if isinstance(answer, ClientReport)]
    deltas = {name: torch.stack([report.delta[name] for report in reports]) for name in first.delta}
    header = {"specs": [spec_to_json(report.spec) for report in reports], "stack": _members(reports)}
    return pack(header, {"delta": deltas}, into)


def decode_answers(data: Memory, memory: Callable[[int], Block] | None = fresh) -> list[Answer]:
    """Return the answers of ``encode_answers``, their tensors in ``memory`` (see ``unpack``)."""
    header = read_header(data)
    if "compressed" in header:
        return [*decode_compressed(data, memory)]
    if "sum" in header:
        header, groups = unpack(data, memory)
        weight = header["sum"].pop("weight")
        columns = {name: tuple(values) for name, values in header["sum"].items()}
        return [SummedReports(spec_from_json(header["spec"]), groups["total"], weight, **columns)]
    if "stack" not in header:
        return [decode_report(data, memory)]
    header, groups = unpack(data, memory)
    deltas = groups["delta"]
    return [
        ClientReport(
            spec=spec_from_json(spec), delta={name: value[k].clone() for name, value in deltas.items()}, **one
        )
        for k, (spec, one) in enumerate(zip(header["specs"], header["stack"], strict=True))
    ]


def _members(reports: Sequence[ClientReport | CompressedReport]) -> list[dict[str, Any]]:
    return [
        {
            "client_id": report.client_id,
            "round_index": report.round_index,
            "num_examples": report.num_examples,
            "num_steps": report.num_steps,
            "metrics": dict(report.metrics),
        }
        for report in reports
    ]
