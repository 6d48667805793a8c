"""What every registered estimator promises."""

from __future__ import annotations

from functools import cache, reduce

import numpy as np
import pytest
import torch
from torch import nn

from widthwise.core.params import Params
from widthwise.core.records import ClientReport
from widthwise.core.registry import Entry
from widthwise.heterogeneity import ESTIMATORS, Estimator, intersection
from widthwise.slicing import WidthSpace, trace

pytestmark = pytest.mark.parametrize("entry", list(ESTIMATORS), ids=ESTIMATORS.names())


@cache
def space() -> WidthSpace:
    return trace(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), torch.zeros(2, 3))


def report(client: int, width: float, delta: Params, scale: float = 1.0) -> ClientReport:
    spec = space().nested(width)
    taken = {name: scale * value for name, value in space().take(delta, spec).items()}
    return ClientReport(client, 0, spec, taken, 10, 1, {"loss": 0.0})


def random_delta(seed: int) -> Params:
    rng = torch.Generator().manual_seed(seed)
    return {n: torch.randn(s, generator=rng) for n, s in space().shapes(space().full()).items()}


def cohort(scale: float = 1.0) -> tuple[list[ClientReport], Params]:
    reports = [report(i, w, random_delta(i), scale) for i, w in [(4, 0.5), (1, 1.0), (7, 0.25)]]
    return reports, {name: scale * value for name, value in random_delta(99).items()}


def measure(estimator: Estimator, reports: list[ClientReport], mean: Params) -> dict[int, float]:
    common = reduce(intersection, [one.spec for one in reports])
    return estimator.measure(space(), iter(reports), mean, common)  # a single pass must do


def test_estimator_measures_every_participant_and_nobody_else(entry: Entry[type[Estimator]]) -> None:
    reports, mean = cohort()
    measured = measure(entry.value(), reports, mean)
    assert set(measured) == {4, 1, 7}
    assert all(np.isfinite(value) and value > 0 for value in measured.values())


def test_estimator_is_pure(entry: Entry[type[Estimator]]) -> None:
    reports, mean = cohort()
    before = {name: value.clone() for name, value in mean.items()}
    estimator, values = entry.value(), np.ones(9)
    measured = measure(estimator, reports, mean)
    assert measured == measure(estimator, reports, mean)
    assert all(torch.equal(before[name], mean[name]) for name in mean)
    first = estimator.update(values, measured, 20)
    assert values.tolist() == [1.0] * 9
    assert first.tolist() == estimator.update(values, measured, 20).tolist()


def test_estimator_does_not_depend_on_the_scale_of_updates(entry: Entry[type[Estimator]]) -> None:
    estimator = entry.value()
    halved = measure(estimator, *cohort(scale=0.5))
    assert halved == pytest.approx(measure(estimator, *cohort()), rel=1e-9)


def test_estimator_measures_zero_when_all_clients_agree(entry: Entry[type[Estimator]]) -> None:
    delta = random_delta(3)
    reports = [report(i, w, delta) for i, w in enumerate([0.25, 1.0])]
    assert measure(entry.value(), reports, delta) == {0: 0.0, 1: 0.0}


def test_estimator_stays_finite_when_nobody_moves(entry: Entry[type[Estimator]]) -> None:
    still = {name: torch.zeros_like(value) for name, value in random_delta(0).items()}
    estimator = entry.value(beta=0, normalise_every=1)
    measured = measure(estimator, [report(0, 0.5, still)], still)
    assert measured == {0: 0.0}
    assert estimator.update(np.ones(1), measured, 10).tolist() == [0.0]
