"""Which widths a probe tries, and which of them it answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from torch import nn, zeros

import widthwise as ww
from widthwise.core.errors import ConfigError, SliceError
from widthwise.engine.probe import Bounds, ProbeResult, ProbeRow, capacity, probe
from widthwise.engine.probe.records import MIB, Measured, written
from widthwise.engine.probe.search import RESOLUTION, search, spaced
from widthwise.slicing import channels_at

BOUNDS = Bounds(100, 1.0)
WIDTHS = [k / 64 for k in range(1, 65)]


def row(width: float, fits: bool) -> ProbeRow:
    return ProbeRow(width, 1, 1, 10.0, 1.0, 0.1, () if fits else ("time",))


def searched(widths: list[float], fits: Callable[[float], bool]) -> tuple[float | None, list[float]]:
    """Return the answer, and the widths in the order in which they were tried."""
    order: list[float] = []

    def measure(width: float) -> ProbeRow:
        order.append(width)
        return row(width, fits(width))

    rows = search(widths, measure)
    assert [one.width for one in rows] == sorted(order)
    return ProbeResult(BOUNDS, tuple(rows)).width, order


@pytest.mark.parametrize("limit", [0.2, *WIDTHS])
def test_search_finds_the_largest_when_smaller_widths_fit_too(limit: float) -> None:
    width, order = searched(WIDTHS, lambda w: w <= limit)
    assert width == max(w for w in WIDTHS if w <= limit)
    assert len(order) <= 8  # the ends, and log2(64) halves
    assert len(set(order)) == len(order)


def test_search_stops_at_the_smallest_when_none_fits() -> None:
    assert searched(WIDTHS, lambda w: False) == (None, [WIDTHS[0]])


def test_search_stops_at_the_largest_when_all_fit() -> None:
    assert searched(WIDTHS, lambda w: True) == (1.0, [WIDTHS[0], 1.0])


@pytest.mark.parametrize("fits", [True, False])
def test_search_tries_a_single_width_once(fits: bool) -> None:
    assert searched([0.5], lambda w: fits) == (0.5 if fits else None, [0.5])


@pytest.mark.parametrize("seed", range(50))
def test_search_answers_a_width_before_one_that_fails_when_measurements_are_noise(seed: int) -> None:
    draw = random.Random(seed)
    noise = {w: draw.random() < 0.9 - 0.6 * w for w in WIDTHS}
    width, order = searched(WIDTHS, noise.__getitem__)
    if width is None:
        assert not noise[WIDTHS[0]]
        return
    assert noise[width]
    if width < 1:
        after = WIDTHS[WIDTHS.index(width) + 1]
        assert after in order
        assert not noise[after]


def test_spaced_keeps_both_ends_and_the_distance() -> None:
    levels = sorted({k / size for size in (10, 24, 512) for k in range(1, size + 1)})
    kept = spaced(levels)
    assert (kept[0], kept[-1]) == (levels[0], 1.0)
    assert set(kept) <= set(levels)
    gaps = [b - a for a, b in pairwise(kept)]
    assert min(gaps[1:]) >= RESOLUTION  # the smallest is kept however near it is
    # Nothing that could have been kept was left out: one more level is never more than 1/512 away here.
    assert max(gaps) < RESOLUTION + 1 / 512
    assert spaced([1.0]) == [1.0]


@pytest.fixture
def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))


def probed(net: nn.Module, fits: Callable[[float], bool], monkeypatch: Any, **options: Any) -> ProbeResult:
    """Probe with injected measurements."""

    def measure(job: Any, bounds: Bounds, *, patience: float, held: int | None) -> Measured:
        return Measured(50 * MIB, 5 * MIB, 0.5, () if fits(job.task.spec.width) else ("memory",))

    monkeypatch.setattr(capacity, "measure", measure)
    space = ww.trace(net, zeros(2, 6))
    batch = zeros(3, 6), zeros(3).long()
    return probe(space, net, batch, BOUNDS, **options)


def test_probe_searches_the_widths_at_which_a_slice_gains_a_channel(net: nn.Module, monkeypatch: Any) -> None:
    found = probed(net, lambda w: w <= 0.7, monkeypatch)
    assert found.width == 0.625  # k / 8 and k / 4: the largest of them below 0.7
    assert [one.width for one in found.rows] == [0.125, 0.5, 0.625, 0.75, 1.0]
    # Two layers keep 5 of 8 and 3 of 4 channels: 6 * 5 + 5, 5 * 3 + 3 and 3 * 3 + 3 parameters.
    assert found.rows[2].params == 35 + 18 + 12
    assert found.rows[2].macs == 30 + 15 + 9


def test_probe_tries_all_named_widths_and_answers_the_largest_that_fits(
    net: nn.Module, monkeypatch: Any
) -> None:
    found = probed(net, lambda w: w != 0.5, monkeypatch, widths=[1, 0.25, 0.5, 0.25])
    assert [(one.width, one.fits) for one in found.rows] == [(0.25, True), (0.5, False), (1, True)]
    assert found.width == 1
    assert found.sentence == "The largest width that fits 100 MiB and 1 s a step is 1."


def test_probe_has_no_width_when_none_fits(net: nn.Module, monkeypatch: Any) -> None:
    found = probed(net, lambda w: False, monkeypatch)
    assert found.width is None
    assert found.to_json()["width"] is None
    assert len(found.rows) == 1


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        ((120.0, 20.0, 0.5, ("memory",)), "its process takes 120 MiB (20 of them by training)."),
        ((120.0, 20.0, None, ("memory",)), "its process takes at least 120 MiB (20 of them by training)."),
        ((20.0, 2.0, 1.5, ("time",)), "a step takes 1.5 s."),
        ((20.0, 2.0, None, ("time",)), "its steps did not end."),
        (
            (120.0, 20.0, 1.5, ("memory", "time")),
            "its process takes 120 MiB (20 of them by training) and a step takes 1.5 s.",
        ),
    ],
)
def test_sentence_says_why_the_smallest_width_does_not_fit(taken: Any, said: str) -> None:
    rows = (ProbeRow(0.125, 1, 1, *taken), row(1.0, False))
    assert ProbeResult(BOUNDS, rows).sentence == f"Not even width 0.125 fits 100 MiB and 1 s a step: {said}"


@pytest.mark.parametrize("channels", [1, 3, 7, 24, 96, 100, 512, 1000])
def test_written_width_keeps_the_same_channels_when_read_back(channels: int) -> None:
    for k in range(1, channels + 1):
        assert channels_at(float(written(k / channels)), channels) == k


def test_bounds_say_which_is_exceeded() -> None:
    bounds = Bounds(1, 0.5)
    assert bounds.exceeded(MIB, 0.5) == ()
    assert bounds.exceeded(MIB + 1, 0.5) == ("memory",)
    assert bounds.exceeded(MIB, 0.6) == ("time",)
    assert bounds.exceeded(MIB + 1, 0.6) == ("memory", "time")


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_bounds_refuse_what_bounds_nothing(value: float) -> None:
    with pytest.raises(ConfigError, match=r"the bound of memory is .*, but it must be above 0 and finite"):
        Bounds(value, 1)
    with pytest.raises(ConfigError, match="the bound of seconds per step is"):
        Bounds(1, value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps is 0, but at least 1 is needed"),
        ({"threads": 0}, "threads is 0, but at least 1"),
        ({"patience": 0.0}, "patience is 0 s, but it must be above 0"),
    ],
)
def test_probe_refuses_numbers_that_are_none(
    net: nn.Module, monkeypatch: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        probed(net, lambda w: True, monkeypatch, **options)


def test_probe_refuses_all_widths_before_it_tries_one(net: nn.Module, monkeypatch: Any) -> None:
    tried: list[float] = []
    with pytest.raises(SliceError, match=r"width is 1\.5"):
        probed(net, lambda w: True, monkeypatch, widths=[0.5, 1.5], watch=tried.append)
    assert tried == []
