"""What every kind of compression promises: pieces of known size, the same every time, zeros for zeros."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import get_args

import pytest
import torch

from widthwise.compression import COMPRESSIONS, CompressionConfig, compress, decompress
from widthwise.core.errors import SliceError
from widthwise.core.records import ClientReport, Mask, SliceSpec
from widthwise.core.seeds import SeedTree
from widthwise.slicing import num_values, trace

KINDS = [pytest.param(entry.value(), id=entry.name) for entry in COMPRESSIONS]
COUNTS = [1, 2, 7, 8, 9, 255, 256, 257, 1000, 2**16, 2**16 + 1]
SEEDS = SeedTree(3)


def drawn(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def test_configuration_knows_every_kind():
    union, *_ = get_args(CompressionConfig)
    found = {get_args(member)[1].tag: get_args(member)[0] for member in get_args(union)}
    assert found == {entry.name: entry.value for entry in COMPRESSIONS}
    assert all(entry.value().kind == entry.name for entry in COMPRESSIONS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", COUNTS)
def test_pieces_are_what_the_layout_says_and_numpy_knows_their_kinds(kind, count):
    pieces = kind.encode(drawn(count), SEEDS)
    kind.check(pieces, count)
    assert sum(piece.nbytes for piece in pieces.values()) == kind.num_bytes(count)
    assert all(piece.numpy().nbytes == piece.nbytes and piece.is_contiguous() for piece in pieces.values())
    decoded = kind.decode(pieces, count)
    assert decoded.shape == (count,)
    assert decoded.dtype == torch.float32
    assert kind.num_bytes(count) < 4 * count + 5  # a scale for a single value is all that it may cost more


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent_depends_on_values_and_stream_only(kind):
    values = drawn(1000)
    before = values.clone()
    torch.manual_seed(1)
    first = kind.encode(values, SEEDS)
    torch.manual_seed(2)
    again = kind.encode(values, SEEDS)
    assert torch.equal(values, before)
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_stay_zeros_and_signs_stay(kind):
    values = torch.cat([torch.zeros(300), drawn(300)])
    decoded = kind.decode(kind.encode(values, SEEDS), 600)
    assert not kind.decode(kind.encode(torch.zeros(600), SEEDS), 600).any()
    assert not decoded[:256].any()
    assert bool((decoded * values >= 0).all())


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_something_else_are_refused(kind):
    pieces = kind.encode(drawn(100), SEEDS)
    name = next(iter(pieces))
    for wrong in (
        {},
        {**pieces, "more": torch.zeros(1)},
        {**pieces, name: pieces[name][:-1]},
        {**pieces, name: pieces[name].double()},
        {**pieces, name: pieces[name][None]},
    ):
        with pytest.raises(SliceError, match=r"a compressed update has the pieces .*, but 100 values become"):
            kind.check(wrong, 100)


@pytest.fixture(scope="module")
def space():
    model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3))
    return trace(model, torch.zeros(2, 6))


def masked(space) -> SliceSpec:
    generator = torch.Generator().manual_seed(4)
    kept = {
        n: torch.rand(space.shapes(space.full())[n], generator=generator) < 0.4
        for n in ("0.weight", "2.weight")
    }
    return SliceSpec(0.5, space.full().kept, Mask(kept, dict.fromkeys(kept, 0.0)))


def report_of(space, spec: SliceSpec, **state) -> ClientReport:
    shapes = space.shapes(spec)
    delta = spec.masked({n: drawn(math.prod(s), i).view(s) for i, (n, s) in enumerate(shapes.items())})
    return ClientReport(5, 2, spec, delta, 11, 4, {"loss": 0.5}, state)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["narrow", "full", "masked"])
def test_report_comes_back_in_the_shapes_of_its_slice(space, kind, how):
    spec = {"narrow": space.nested(0.25), "full": space.full(), "masked": masked(space)}[how]
    control = report_of(space, spec).delta
    report = report_of(space, spec, control={name: -value for name, value in control.items()})
    sent = compress(report, kind, seed=8)
    back = decompress(sent, kind, space, spec)
    assert back.spec is spec
    for field in fields(ClientReport):
        if field.name not in ("spec", "delta", "state"):
            assert getattr(back, field.name) == getattr(report, field.name)
    for ours, theirs in ((back.delta, report.delta), (back.state["control"], report.state["control"])):
        assert {n: v.shape for n, v in ours.items()} == {n: v.shape for n, v in theirs.items()}
        assert list(ours) == list(space.shapes(spec))
        for name, kept in (spec.mask.kept if spec.mask else {}).items():
            assert not ours[name][~kept].any()
        difference = sum(float((ours[n] - v).square().sum()) for n, v in theirs.items())
        assert difference < sum(float(v.square().sum()) for v in theirs.values())
    count = num_values(space, spec)
    for pieces in (sent.delta, sent.state["control"]):
        assert sum(piece.nbytes for piece in pieces.values()) == kind.num_bytes(count)


@pytest.mark.parametrize("kind", KINDS)
def test_report_of_another_slice_is_refused(space, kind):
    sent = compress(report_of(space, space.nested(0.5)), kind, seed=8)
    with pytest.raises(SliceError, match="Compress the update of the slice that was assigned"):
        decompress(sent, kind, space, space.full())


def test_dictionaries_and_clients_have_streams_of_their_own(space):
    spec = space.full()
    same = report_of(space, spec).delta
    report = report_of(space, spec, control=same)
    kind = COMPRESSIONS["int8"].value()
    sent, other = (compress(report, kind, seed) for seed in (8, 9))
    assert not torch.equal(sent.delta["steps"], sent.state["control"]["steps"])
    assert not torch.equal(sent.delta["steps"], other.delta["steps"])
