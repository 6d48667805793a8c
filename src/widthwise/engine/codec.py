"""Records to bytes and back, without pickle: a JSON header and a safetensors body.

Nothing that a peer sends is executed, and what is sent is what is counted.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from widthwise.core.params import Params
from widthwise.core.records import ClientReport, Mask, SliceSpec

_SEPARATOR = "\x1f"


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


def pack(header: Mapping[str, Any], groups: Mapping[str, Mapping[str, Tensor]]) -> bytes:
    """Return header and named groups of tensors as bytes."""
    flat = {
        f"{group}{_SEPARATOR}{name}": value
        for group, tensors in groups.items()
        for name, value in tensors.items()
    }
    # Written down, since safetensors keeps no order: sums over parameters must run in one order everywhere.
    names = {group: list(tensors) for group, tensors in groups.items()}
    head = json.dumps({**header, "groups": names}).encode()
    body = safetensors.torch.save({name: value.contiguous() for name, value in flat.items()})
    return struct.pack("<Q", len(head)) + head + body


def read_header(data: bytes) -> dict[str, Any]:
    """Return the header of ``pack``, with the names of the tensors of each group."""
    (size,) = struct.unpack_from("<Q", data)
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    return header


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, Params]]:
    """Return header and groups of ``pack``, tensors in the order in which they were packed."""
    (size,) = struct.unpack_from("<Q", data)
    header = read_header(data)
    body = safetensors.torch.load(data[8 + size :])
    # Copied out of the message: there a tensor starts at any address, and vectorised sums and products
    # round differently on differently aligned memory.
    groups = {
        group: {name: body[f"{group}{_SEPARATOR}{name}"].clone() for name in names}
        for group, names in header.pop("groups").items()
    }
    return header, groups


def encode_report(report: ClientReport) -> bytes:
    """Return a report as bytes."""
    header = {
        "client_id": report.client_id,
        "round_index": report.round_index,
        "spec": spec_to_json(report.spec),
        "num_examples": report.num_examples,
        "num_steps": report.num_steps,
        "metrics": dict(report.metrics),
    }
    groups: dict[str, Mapping[str, Tensor]] = {
        "delta": report.delta,
        **{f"state.{k}": v for k, v in report.state.items()},
    }
    if mask := report.spec.mask:
        header["thresholds"] = dict(mask.thresholds)
        groups["mask"] = mask.kept
    return pack(header, groups)


def decode_report(data: bytes) -> ClientReport:
    """Return the report of ``encode_report``."""
    header, groups = unpack(data)
    spec = spec_from_json(header.pop("spec"))
    if "mask" in groups:
        spec = replace(spec, mask=Mask(groups.pop("mask"), header.pop("thresholds")))
    delta = groups.pop("delta")
    state = {name.removeprefix("state."): tensors for name, tensors in groups.items()}
    return ClientReport(spec=spec, delta=delta, state=state, **header)


def encode_reports(reports: Sequence[ClientReport]) -> bytes:
    """Return the reports of a stack as one message. Those of several clients have no state and no mask."""
    if len(reports) == 1:
        return encode_report(reports[0])
    own = [
        {
            "client_id": report.client_id,
            "spec": spec_to_json(report.spec),
            "num_examples": report.num_examples,
            "metrics": dict(report.metrics),
        }
        for report in reports
    ]
    first = reports[0]
    header = {"round_index": first.round_index, "num_steps": first.num_steps, "stack": own}
    deltas = {name: torch.stack([report.delta[name] for report in reports]) for name in first.delta}
    return pack(header, {"delta": deltas})


def decode_reports(data: bytes) -> list[ClientReport]:
    """Return the reports of ``encode_reports``."""
    if "stack" not in read_header(data):
        return [decode_report(data)]
    header, groups = unpack(data)
    deltas = [value.unbind() for value in groups["delta"].values()]
    return [
        ClientReport(
            client_id=own["client_id"],
            round_index=header["round_index"],
            spec=spec_from_json(own["spec"]),
            delta={name: value.clone() for name, value in zip(groups["delta"], values, strict=True)},
            num_examples=own["num_examples"],
            num_steps=header["num_steps"],
            metrics=own["metrics"],
        )
        for own, values in zip(header["stack"], zip(*deltas, strict=True), strict=True)
    ]
