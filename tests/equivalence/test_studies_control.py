"""A control spends what its treatment spent: real runs of HAS-FL and FjORD on digits, in every currency."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from widthwise.engine import RunResult, run_federation
from widthwise.slicing import WidthSpace, trace
from widthwise.studies.build import build, run
from widthwise.studies.config import RunConfig, load_config

ROUNDS, COHORT = 6, 5
BASE: dict[str, Any] = {
    "task": {
        "dataset": "digits",
        "model": {"name": "mlp", "hidden": [24, 10]},
        "clients": 10,
        "partition": {"kind": "dirichlet", "alpha": 0.5},
        "limit": 300,
        "test_limit": 100,
    },
    "capacity": {"tiers": [0.25, 0.5, 0.75, 1.0], "shares": [0.3, 0.3, 0.2, 0.2]},
    "method": {"name": "hasfl", "p_min": 0.15, "gamma": 0.15, "warmup": 1, "adapt_every": 1},
    "training": {"rounds": ROUNDS, "cohort": COHORT, "local_epochs": 2, "batch_size": 16},
    "engine": {"executor": "serial", "eval_every": ROUNDS},
    "seed": 3,
}
#: What a record says that a round cost, written out once more beside ``engine.costs``.
RECORDED = {
    "width": lambda r: r["mean_width"] * COHORT,
    "params": lambda r: r["bytes_up"] / 4,
    "macs": lambda r: r["macs"],
    "bytes": lambda r: r["bytes_up"] + r["bytes_down"],
}


@pytest.fixture(scope="module", autouse=True)
def one_trace() -> Iterator[None]:
    """Trace the one model of these tests once."""
    spaces: list[WidthSpace] = []

    def traced(*args: Any, **options: Any) -> WidthSpace:
        spaces.extend([] if spaces else [trace(*args, **options)])
        return spaces[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("widthwise.studies.build"), "trace", traced)
        yield


@pytest.fixture(scope="module")
def treatments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunResult]:
    folder = tmp_path_factory.mktemp("treatments")
    methods = {
        "hasfl": BASE["method"],
        "no-guarantee": {**BASE["method"], "guarantee": False},
        "fjord": {"name": "fjord"},
    }
    return {
        name: run(RunConfig(**{**BASE, "method": method}), folder / name) for name, method in methods.items()
    }


def control_of(treatment: RunResult, **control: Any) -> RunConfig:
    block = {"matched_to": str(treatment.path), **control}
    return RunConfig(**{**load_config(treatment.path / "config.yaml").to_dict(), "control": block})


@pytest.mark.parametrize("name", ["hasfl", "fjord"])
@pytest.mark.parametrize("currency", RECORDED)
def test_control_spends_what_its_treatment_spent(
    treatments: dict[str, RunResult], tmp_path: Path, name: str, currency: str
) -> None:
    treatment = treatments[name]
    fed = build(control_of(treatment, currency=currency))
    done = run_federation(fed, tmp_path / "control")
    spent, budget = RECORDED[currency](done.rounds), RECORDED[currency](treatment.rounds)

    step = max(fed.population.costs.largest_step, 1e-12 * float(budget.max()))
    assert step < 0.25 * budget.min()  # a channel is little beside a round, so the next line says something
    assert np.all(np.abs(spent - budget) <= 2 * step)  # what an earlier round owes, and its own rounding
    assert abs(spent.sum() - budget.sum()) <= step

    caps = np.array(treatment.partition["capacities"])
    trained = done.clients[done.clients["participated"]]
    assert np.all(trained["width"] <= caps[trained["client"]])
    told = done.result["control"]
    assert told["met"]
    assert (told["currency"], told["matched_to"]) == (currency, treatment.result["config_hash"])
    assert told["spent"] * COHORT == pytest.approx(spent.mean())
    assert told["largest_error"] == pytest.approx(np.abs(spent - budget).max() / budget.mean(), abs=1e-12)
    assert list(done.rounds["spent"] * COHORT) == pytest.approx(list(spent))
    assert list(done.rounds["budget"] * COHORT) == pytest.approx(list(budget))


@pytest.mark.parametrize("name", ["hasfl", "no-guarantee"])
def test_control_meets_the_same_cohorts_and_keeps_or_drops_the_guarantee(
    treatments: dict[str, RunResult], tmp_path: Path, name: str
) -> None:
    treatment = treatments[name]
    done = run(control_of(treatment), tmp_path / "control")
    for column in ("participated", "num_examples", "capacity"):
        assert list(done.clients[column]) == list(treatment.clients[column])
    trained = done.clients[done.clients["participated"]]
    largest = trained[trained["capacity"] == 1.0]
    assert len(largest) >= 4
    # The treatment's first two rounds give everybody the capacity, so any control does.
    assert (largest[largest["round"] >= 2]["width"] == 1.0).all() == (name == "hasfl")
    others = trained[(trained["capacity"] < 1.0) & (trained["round"] >= 2)]
    assert others["width"].nunique() > 10
