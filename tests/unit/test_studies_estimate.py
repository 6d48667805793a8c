"""What a study is estimated to cost, beside what its runs then count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from widthwise.studies import Study, plan, run
from widthwise.studies.estimate import estimate_study

BASE: dict[str, Any] = {
    "task": {
        "dataset": "digits",
        "model": "mlp",
        "clients": 6,
        "limit": 120,
        "test_limit": 40,
        "partition": {"kind": "iid"},
    },
    "capacity": {"tiers": [0.5, 1.0], "shares": [0.5, 0.5]},
    "training": {"rounds": 3, "cohort": 3, "local_epochs": 2, "lr": 0.05},
    "engine": {"executor": "serial"},
}


def test_estimate_counts_what_the_runs_will_count(tmp_path: Path) -> None:
    # Policies that do not look at estimates, and clients of equal size: the simulation is exact.
    methods = {
        "heterofl": {"method.name": "heterofl"},
        "fjord": {"method.name": "fjord"},
        "weak": {"method.name": "exclude-the-weak"},
        "masked": {"method.name": "fiarse"},
        "random": {"method": {"name": "random-budget", "matched_to": "heterofl"}},
    }
    planned = plan(Study(base=BASE, methods=methods, seeds=[3]), tmp_path)
    estimates = estimate_study(planned)
    assert [one.state for one in estimates] == ["new"] * 5
    for planned_run, estimate in zip(planned[:4], estimates, strict=False):
        result = run(planned_run.config, planned_run.path).result
        assert result is not None
        assert estimate.macs == result["macs"]
        assert estimate.bytes == result["bytes_up"] + result["bytes_down"]
        assert estimate.mean_width == pytest.approx(result["mean_width"])
        assert estimate.seconds == estimate.seconds_left > 0
    assert estimates[4].macs == estimates[0].macs  # it is matched to it
    (again,) = estimate_study(planned[:1])
    assert (again.state, again.rounds_done, again.seconds_left) == ("finished", 3, 0.0)


def test_estimate_names_the_problem_of_a_task_without_data(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("WIDTHWISE_DATA", raising=False)
    tasks = {"there": {}, "missing": {"base": {"task": {"dataset": "emnist", "model": "cnn", "limit": 100}}}}
    study = Study(base=BASE, tasks=tasks, methods={"a": {"method.name": "heterofl"}}, seeds=[1])
    there, missing = estimate_study(plan(study, tmp_path))
    assert there.problem is None
    assert missing.problem is not None
    assert "dataset is 'emnist', but no folder of local files" in missing.problem
    assert missing.seconds_left == 0
