"""Tasks and reports as Flower's records: raw buffers and JSON, nothing that could be executed.

A task is a ``ConfigRecord`` (``task``, one JSON text) and an ``ArrayRecord`` for each kind of tensors; a
report is a ``MetricRecord`` of numbers and ``ArrayRecord``s. Of a masked parameter only the kept values
travel, and on the way down one bit for each of its coordinates. A compressed report travels in its pieces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from widthwise.compression import Compression, expand
from widthwise.core.params import Params
from widthwise.core.records import ClientReport, ClientTask, CompressedReport, LocalConfig, Mask, SliceSpec
from widthwise.engine.codec import spec_from_json, spec_to_json
from widthwise.slicing import WidthSpace, num_values

TASK, PARAMS, BUFFERS, UPDATE, REPORT, STATE = "task", "params", "buffers", "update", "report", "state."
MASK = {"spec": "mask", "context": "context-mask"}
RAW = "raw"
"""What an ``Array`` says of its data: the values one after the other, row-major, little-endian."""

KINDS = (
    *(torch.float32, torch.float64),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in KINDS}


@dataclass(frozen=True)
class Size:
    """Bytes of a message.

    Attributes:
        wire: All of it, as Flower puts it on the wire: objects, their headers, each object once.
        tensors: The values of its tensors alone.
    """

    wire: int
    tensors: int


def size_of(message: Message) -> Size:
    """Return what a message weighs."""
    objects: dict[str, int] = {}

    def walk(one: Any) -> None:
        for child in (one.children or {}).values():
            walk(child)
        if (name := one.object_id) not in objects:
            objects[name] = len(one.deflate())

    walk(message)
    records = message.content.array_records.values() if message.has_content() else ()
    return Size(sum(objects.values()), sum(len(array.data) for r in records for array in r.values()))


def to_array(value: Tensor) -> Array:
    """Return a tensor as raw bytes with its type and shape."""
    raw = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return Array(str(value.dtype).removeprefix("torch."), tuple(value.shape), RAW, raw)


def to_tensor(array: Array) -> Tensor:
    """Return the tensor of ``to_array``, in memory of its own (see ``engine.codec.unpack``).

    Raises:
        ValueError: if the array is not one of ``to_array``, or its bytes are not as many as its shape says.
    """
    dtype = DTYPES.get(array.dtype)
    if array.stype != RAW or dtype is None:
        raise ValueError(f"an array is {array.stype!r} of {array.dtype!r}, but raw numbers are expected")
    if min(array.shape, default=0) < 0 or prod(array.shape) * dtype.itemsize != len(array.data):
        raise ValueError(f"an array of shape {array.shape} has {len(array.data)} bytes")
    value = torch.empty(array.shape, dtype=dtype)
    if value.numel():
        value.reshape(-1).view(torch.uint8).numpy()[:] = np.frombuffer(array.data, np.uint8)
    return value


def pack(tensors: Mapping[str, Tensor], spec: SliceSpec) -> ArrayRecord:
    """Return tensors in the shapes of a spec as a record; of a masked one, the kept values."""
    mask = spec.mask.kept if spec.mask else {}
    return ArrayRecord({n: to_array(v[mask[n]] if n in mask else v) for n, v in tensors.items()})


def reported(
    space: WidthSpace, spec: SliceSpec, compression: Compression | None
) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Return type and shape of each array of a dictionary that a client of a spec reports."""
    if compression is not None:
        layout = compression.layout(num_values(space, spec))
        return {name: (kind, (number,)) for name, (kind, number) in layout.items()}
    mask = spec.mask.kept if spec.mask else {}
    shapes = {n: (int(mask[n].sum()),) if n in mask else s for n, s in space.shapes(spec).items()}
    return {name: (torch.float32, shape) for name, shape in shapes.items()}


def read_report(
    record: Mapping[str, Array], space: WidthSpace, spec: SliceSpec, compression: Compression | None
) -> Params:
    """Return a dictionary that a client has reported, of arrays as ``reported`` says.

    Raises:
        SliceError: if compressed arrays stand for nothing.
    """
    if compression is None:
        return unpack(record, space, spec)
    return expand({name: to_tensor(array) for name, array in record.items()}, compression, space, spec)


def unpack(record: Mapping[str, Array], space: WidthSpace, spec: SliceSpec) -> Params:
    """Return the parameters of ``pack``, in the model's order, with zeros outside a mask."""
    mask = spec.mask.kept if spec.mask else {}
    values = {name: to_tensor(record[name]) for name in space.shapes(spec)}
    for name, kept in mask.items():
        values[name] = torch.zeros(kept.shape).masked_scatter_(kept, values[name])
    return values


def encode_task(task: ClientTask, tiers: tuple[float, ...]) -> RecordDict:
    """Return the message to a client.

    Args:
        task: What it is to do.
        tiers: The capacities that occur in the run, which an objective may depend on.
    """
    specs = {"spec": task.spec}
    if task.context_spec.key() != task.spec.key() or task.context_spec.mask is not task.spec.mask:
        specs["context"] = task.context_spec
    head = {
        "client": task.client_id,
        "round": task.round_index,
        "capacity": task.capacity,
        "seed": task.seed,
        "config": asdict(task.config),
        "tiers": tiers,
        "specs": {name: spec_to_json(spec) for name, spec in specs.items()},
        "thresholds": {name: dict(spec.mask.thresholds) for name, spec in specs.items() if spec.mask},
    }
    records = {
        PARAMS: pack(task.params, task.context_spec),
        BUFFERS: ArrayRecord({name: to_array(value) for name, value in task.buffers.items()}),
        **{STATE + name: pack(tensors, task.spec) for name, tensors in task.state.items()},
        **{MASK[name]: _bits(spec.mask) for name, spec in specs.items() if spec.mask},
    }
    return RecordDict({TASK: ConfigRecord({TASK: json.dumps(head, separators=(",", ":"))}), **records})


def decode_task(content: RecordDict, space: WidthSpace) -> tuple[ClientTask, tuple[float, ...]]:
    """Return task and tiers of ``encode_task``."""
    head = json.loads(str(content.config_records[TASK][TASK]))
    arrays = content.array_records
    specs = {name: spec_from_json(data) for name, data in head["specs"].items()}
    for name, thresholds in head["thresholds"].items():
        mask = Mask(_from_bits(arrays[MASK[name]], space), thresholds)
        specs[name] = replace(specs[name], mask=mask)
    spec, context = specs["spec"], specs.get("context", specs["spec"])
    task = ClientTask(
        client_id=head["client"],
        round_index=head["round"],
        spec=spec,
        context_spec=context,
        capacity=head["capacity"],
        params=unpack(arrays[PARAMS], space, context),
        buffers={name: to_tensor(array) for name, array in arrays[BUFFERS].items()},
        state={
            key.removeprefix(STATE): unpack(record, space, spec)
            for key, record in arrays.items()
            if key.startswith(STATE)
        },
        config=LocalConfig(**head["config"]),
        seed=head["seed"],
    )
    return task, tuple(head["tiers"])


def _bits(mask: Mask) -> ArrayRecord:
    packed = {name: np.packbits(kept.numpy().reshape(-1)) for name, kept in mask.kept.items()}
    return ArrayRecord({name: to_array(torch.from_numpy(bits)) for name, bits in packed.items()})


def _from_bits(record: ArrayRecord, space: WidthSpace) -> Params:
    kept = {}
    for name, array in record.items():
        shape = space.parameters[name].shape
        bits = np.unpackbits(to_tensor(array).numpy(), count=prod(shape))
        kept[name] = torch.from_numpy(bits.astype(bool)).view(shape)
    return kept


def encode_report(report: ClientReport | CompressedReport, received: Size) -> RecordDict:
    """Return a client's answer, with what it has measured of the message that it answers."""
    numbers: dict[str, int | float | list[int] | list[float]] = {
        "client": report.client_id,
        "round": report.round_index,
        "examples": report.num_examples,
        "steps": report.num_steps,
        "loss": report.metrics["loss"],
        "received": received.wire,
    }
    groups = {UPDATE: report.delta, **{STATE + name: tensors for name, tensors in report.state.items()}}
    if isinstance(report, ClientReport):
        records = {name: pack(tensors, report.spec) for name, tensors in groups.items()}
    else:
        records = {
            n: ArrayRecord({p: to_array(v) for p, v in pieces.items()}) for n, pieces in groups.items()
        }
    return RecordDict({REPORT: MetricRecord(numbers), **records})
