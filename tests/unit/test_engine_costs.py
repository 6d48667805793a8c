"""The price list against the costs that a round accounts for, and what a stored run has spent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from widthwise.engine.costs import price_list, slice_cost, spent_per_head
from widthwise.slicing import WidthSpace, trace
from widthwise.training import OBJECTIVES

CAPACITIES = np.array([0.3, 1.0, 0.5, 0.3])
SAMPLES = np.array([7, 20, 1, 30])
PLAIN = OBJECTIVES["plain"].value()
OBJECTIVE = {
    "plain": PLAIN,
    "control-variates": OBJECTIVES["control-variates"].value(),
    "distillation": OBJECTIVES["distillation"].value(),
    "student of a step": OBJECTIVES["distillation"].value(draw="step", student_widths=(0.25, 0.5, 1.0)),
}


@pytest.fixture(scope="module")
def space() -> WidthSpace:
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3))
    return trace(model, torch.zeros(2, 6))


@pytest.mark.parametrize("name", OBJECTIVE)
@pytest.mark.parametrize("currency", ["params", "macs", "bytes"])
def test_price_list_is_what_a_round_accounts_for(space: WidthSpace, name: str, currency: Any) -> None:
    objective = OBJECTIVE[name]
    costs = price_list(currency, space, objective, CAPACITIES, SAMPLES)
    rng = np.random.default_rng(0)
    for client, capacity in enumerate(CAPACITIES):
        for drawn in [*rng.uniform(0.01, capacity, 20), capacity]:
            width = min(float(costs.snap(np.array([drawn]))[0]), capacity)
            spec = space.nested(width)
            assert space.counts(spec) == space.counts(
                space.nested(drawn)
            )  # a snapped width is the same slice
            context = space.nested(objective.context_width(width, capacity))
            cost = slice_cost(space, objective, spec, context, int(SAMPLES[client]))
            expected = {
                "params": sum(np.prod(shape) for shape in space.shapes(spec).values()),
                "macs": cost.macs,
                "bytes": cost.bytes_up + cost.bytes_down,
            }
            assert costs.of([client], np.array([width])).tolist() == [expected[currency]]


def test_price_list_of_widths_is_the_width(space: WidthSpace) -> None:
    costs = price_list("width", space, PLAIN, CAPACITIES, SAMPLES)
    widths = np.array([0.123, 0.7])
    assert costs.of([0, 1], widths).tolist() == costs.snap(widths).tolist() == widths.tolist()
    assert costs.largest_step == 0


def test_spent_per_head_reads_every_currency_from_the_rounds() -> None:
    table = pd.DataFrame({"mean_width": [0.5], "bytes_up": [800], "bytes_down": [1200], "macs": [900]})
    # 2 clients. Plain: 800 / 4 = 200 parameters. Control variates double what goes up: 100 parameters.
    cases = {"width": 0.5, "params": 100, "macs": 450, "bytes": 1000}
    assert {c: spent_per_head(c, table, 2, PLAIN)[0] for c in cases} == cases  # type: ignore[arg-type]
    assert spent_per_head("params", table, 2, OBJECTIVE["control-variates"]) == [50]
