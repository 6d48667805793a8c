"""Compressing what a client reports, and reading it again on the server: pure functions over records."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from widthwise.compression.compression import Compression
from widthwise.core.params import Params
from widthwise.core.protocols import Space
from widthwise.core.records import ClientReport, CompressedReport, SliceSpec
from widthwise.core.seeds import SeedTree


def compress(report: ClientReport, compression: Compression, seed: int) -> CompressedReport:
    """Return what a client sends in place of its report.

    Each of its dictionaries (the update, and the increments of control variates where there are any) is
    compressed as one vector: its values in the order of the parameters' names, under a mask those that the
    mask keeps.

    Args:
        report: What the client found; all values finite.
        compression: The kind.
        seed: Root of the client's random stream in this round (``ClientTask.seed``).

    Returns:
        The report to be sent. ``decompress`` gives the report that the server works with.
    """
    seeds = SeedTree(seed).at("compression")

    def encoded(name: str, tensors: Params) -> Params:
        return compression.encode(flatten(tensors, report.spec), seeds.at(name))

    return CompressedReport(
        client_id=report.client_id,
        round_index=report.round_index,
        delta=encoded("delta", report.delta),
        num_examples=report.num_examples,
        num_steps=report.num_steps,
        metrics=report.metrics,
        state={name: encoded(f"state.{name}", tensors) for name, tensors in report.state.items()},
    )


def decompress(
    report: CompressedReport, compression: Compression, space: Space, spec: SliceSpec
) -> ClientReport:
    """Return the report that a compressed one stands for.

    Args:
        report: What was received.
        compression: The kind.
        space: The width space.
        spec: The slice that the server has assigned; what lies outside its mask is 0.

    Raises:
        SliceError: if a dictionary is not the compressed form of this slice.
    """
    return ClientReport(
        client_id=report.client_id,
        round_index=report.round_index,
        spec=spec,
        delta=expand(report.delta, compression, space, spec),
        num_examples=report.num_examples,
        num_steps=report.num_steps,
        metrics=report.metrics,
        state={name: expand(pieces, compression, space, spec) for name, pieces in report.state.items()},
    )


def expand(pieces: Mapping[str, Tensor], compression: Compression, space: Space, spec: SliceSpec) -> Params:
    """Return the dictionary that its pieces stand for, in the shapes of a slice.

    Raises:
        SliceError: if the pieces are not the compressed form of this slice.
    """
    shapes = space.shapes(spec)
    kept = spec.mask.kept if spec.mask else {}
    count = sum(int(kept[n].sum()) if n in kept else math.prod(shape) for n, shape in shapes.items())
    compression.check(pieces, count)
    return unflatten(compression.decode(pieces, count), shapes, spec)


def flatten(tensors: Mapping[str, Tensor], spec: SliceSpec) -> Tensor:
    """Return [n] float32 the values that a spec keeps, in the order of the names.

    Example:
        >>> spec = SliceSpec(1.0, {})
        >>> flatten({"b": torch.ones(1), "a": torch.zeros(2)}, spec).tolist()
        [0.0, 0.0, 1.0]
    """
    kept = spec.mask.kept if spec.mask else {}
    return torch.cat(
        [tensors[n][kept[n]] if n in kept else tensors[n].reshape(-1) for n in sorted(tensors)]
    ).float()


def unflatten(values: Tensor, shapes: Mapping[str, tuple[int, ...]], spec: SliceSpec) -> Params:
    """Return the tensors of ``flatten``, zero outside the spec's mask.

    Args:
        values: [n].
        shapes: Shape of every parameter of the slice; the result is in this order.
        spec: The slice.
    """
    kept = spec.mask.kept if spec.mask else {}
    names = sorted(shapes)
    counts = [int(kept[n].sum()) if n in kept else math.prod(shapes[n]) for n in names]
    parts = dict(zip(names, torch.split(values, counts), strict=True))
    return {
        name: torch.zeros(shape).masked_scatter_(kept[name], parts[name])
        if name in kept
        else parts[name].view(shape)
        for name, shape in shapes.items()
    }
