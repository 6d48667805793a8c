"""A round holds few reports at a time, however many clients take part in it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from widthwise.engine import disk, run_federation
from widthwise.engine.executors import handout, process
from widthwise.engine.worker import ClientRunner
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig

COHORT = 200


class Watch:
    """Counts the updates that are alive whenever further reports come to be in this process."""

    def __init__(self) -> None:
        self.alive: list[list[Any]] = []
        self.made = self.peak = 0

    def __call__(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any) -> Any:
            made = make(*args)
            for report in made if isinstance(made, list) else [made]:
                groups = (report.delta, *report.state.values())
                tensors = [value for params in groups for value in params.values()]
                self.alive = [refs for refs in self.alive if any(ref() is not None for ref in refs)]
                self.alive.append([weakref.ref(value) for value in tensors])
                self.made, self.peak = self.made + 1, max(self.peak, len(self.alive))
            return made

        return watched


@pytest.mark.parametrize(("executor", "in_flight"), [("serial", 1), ("process", 2 * handout.WINDOW)])
def test_round_holds_few_of_two_hundred_updates(
    executor: str, in_flight: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = build(
        RunConfig(
            task={
                "dataset": "digits",
                "model": {"name": "mlp", "hidden": [8]},
                "clients": COHORT,
                "partition": {"kind": "iid"},
            },
            method={"name": "hasfl", "objective": "control-variates", "warmup": 0, "adapt_every": 1},
            training={"rounds": 1, "cohort": COHORT, "local_epochs": 1, "batch_size": 8, "momentum": 0.0},
            engine={"executor": executor, "workers": 2},
        )
    )
    watch = Watch()
    if executor == "serial":
        monkeypatch.setattr(ClientRunner, "__call__", watch(ClientRunner.__call__))
    else:
        monkeypatch.setattr(process, "decode_answers", watch(process.decode_answers))
    monkeypatch.setattr(disk, "decode_report", watch(disk.decode_report))
    monkeypatch.setattr(disk, "IN_MEMORY", 10_000)  # most of them go to disk
    run_federation(fed, tmp_path / "run")
    assert watch.made == 2 * COHORT  # each once, and once more for the estimator
    assert watch.peak <= in_flight + 2
    assert len(list((tmp_path / "run" / "clients").iterdir())) == COHORT
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith("tmp")]
