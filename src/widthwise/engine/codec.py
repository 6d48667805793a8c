"""Records to bytes and back, without pickle: a JSON header and a safetensors body.

Nothing that a peer sends is executed, and what is sent is what is counted.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import safetensors.torch
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


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, Params]]:
    """Return header and groups of ``pack``, tensors in the order in which they were packed."""
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
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
