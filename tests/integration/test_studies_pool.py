"""Studies in real worker processes: side by side, stopped, gone on with, and with a run that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from widthwise.cli_study import notes
from widthwise.studies import Advance, Ended, Note, RunPool, Study, merge, plan, run_study
from widthwise.studies.pool import Event

ROUNDS = 16
PATIENCE = 250
"""Seconds after which a study must have done what takes it a few on a machine that is free."""
STUDY: dict[str, Any] = {
    "base": {
        "task": {
            "dataset": "digits",
            "model": "mlp",
            "clients": 6,
            "limit": 240,
            "test_limit": 40,
            "partition": {"kind": "iid"},
        },
        "capacity": {"tiers": [0.5, 1.0], "shares": [0.5, 0.5]},
        "training": {"rounds": ROUNDS, "cohort": 3, "local_epochs": 1, "lr": 0.05},
        "engine": {"executor": "process", "workers": 2, "checkpoint_every": 1, "eval_every": 4},
    },
    "methods": {"heterofl": {"method.name": "heterofl"}, "uniform": {"method.name": "uniform"}},
    "seeds": [1, 2],
}


def content(run: Path) -> dict[str, Any]:
    """Everything that must be equal: all but wall time."""
    lines = [*(run / "rounds.jsonl").read_text().splitlines(), (run / "result.json").read_text()]
    return {
        "records": [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines],
        "clients": pd.read_parquet(run / "clients.parquet").to_json(double_precision=15),
        "state": (run / "checkpoint" / f"round-{ROUNDS:06d}.safetensors").read_bytes(),
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The runs of the study, one after the other, each with worker processes of its own."""
    out = tmp_path_factory.mktemp("undisturbed")
    with RunPool(1) as pool:
        outcomes = list(run_study(plan(Study(**STUDY), out), pool))
    assert [outcome.state for outcome in outcomes] == ["done"] * 4
    return {outcome.planned.path.name: content(outcome.planned.path) for outcome in outcomes}


def test_pool_goes_on_when_a_worker_is_killed(tmp_path: Path) -> None:
    planned = plan(Study(**STUDY), tmp_path)
    told: list[Event] = []

    def watch(event: Event) -> None:
        told.append(event)
        if isinstance(event, Advance) and (event.path.name, event.done) == ("uniform-s1", 2):
            (victim,) = [p for p, run in pool._busy.values() if run.path == event.path]
            os.kill(victim.pid, signal.SIGKILL)

    with RunPool(2, notes=notes) as pool:
        outcomes = {o.planned.path.name: o for o in run_study(planned, pool, watch)}
    assert {name: outcome.state for name, outcome in outcomes.items()} == {
        "heterofl-s1": "done",
        "uniform-s1": "failed",
        "heterofl-s2": "done",
        "uniform-s2": "done",
    }
    assert "its process died (exit code -9), but it must live" in str(outcomes["uniform-s1"].error)
    done = [event.done for event in told if isinstance(event, Advance) and event.path.name == "uniform-s2"]
    assert done == list(range(ROUNDS + 1))
    warned = {event.path.name for event in told if isinstance(event, Note)}
    assert warned == {"uniform-s1", "uniform-s2"}  # half of the channels are never trained
    assert sum(isinstance(event, Ended) for event in told) == 4
    # A failed run is tried again, the others are not.
    with RunPool(1) as pool:
        states = [outcome.state for outcome in run_study(planned, pool)]
    assert states.count("skipped") == 3
    assert states.count("done") == 1


def test_pool_reports_a_run_that_raises_and_keeps_its_worker(tmp_path: Path) -> None:
    bad = STUDY | {"methods": {"bad": {"method.name": "fedavg", "training": {"lr": 1e30, "clip_norm": None}}}}
    with RunPool(1) as pool:
        (first, second) = run_study(plan(Study(**bad), tmp_path), pool)
    assert first.state == second.state == "failed"
    assert "client" in str(first.error)


def test_pool_gives_the_same_bits_when_runs_train_side_by_side(
    undisturbed: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    with RunPool(2) as pool:
        list(run_study(plan(Study(**STUDY), tmp_path), pool))
    assert {run.name: content(run) for run in tmp_path.iterdir()} == undisturbed


@pytest.mark.timeout(3 * PATIENCE)
@pytest.mark.parametrize(
    ("how", "code", "checkpoint_every"),
    [(signal.SIGKILL, -9, 1), (signal.SIGINT, 130, 1000), (signal.SIGTERM, 143, 1000)],
)
def test_study_goes_on_after_it_was_stopped_without_repeating_a_round(
    undisturbed: dict[str, dict[str, Any]],
    tmp_path: Path,
    how: signal.Signals,
    code: int,
    checkpoint_every: int,
) -> None:
    file, out = tmp_path / "tiny.yaml", tmp_path / "out"
    base = merge(STUDY["base"], {"engine.checkpoint_every": checkpoint_every})
    file.write_text(yaml.safe_dump({**STUDY, "base": base}))
    command = [sys.executable, "-m", "widthwise.cli", "study", str(file), "--jobs", "2", "--out", str(out)]
    with subprocess.Popen(
        command,
        stderr=subprocess.DEVNULL,
        # A shell may have started the tests with Ctrl-C ignored, which the study would inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as first:
        try:
            deadline = time.monotonic() + PATIENCE
            while sum(len(f.read_text().splitlines()) for f in out.glob("*/rounds.jsonl")) < 5:
                assert time.monotonic() < deadline, "the study did not start"
                assert first.poll() is None, "the study ended"
                time.sleep(0.02)
            first.send_signal(how)
            assert first.wait(timeout=PATIENCE) == code
        finally:
            first.kill()
    time.sleep(0.5)  # workers of a killed study end by themselves
    before = {file: file.read_text() for file in out.glob("*/rounds.jsonl")}
    assert any(0 < len(text.splitlines()) < ROUNDS for text in before.values())

    again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert again.returncode == 0, again.stderr
    assert "going on at round" in again.stderr
    for rounds, text in before.items():
        # Down to the measured seconds: what had been finished was not trained a second time. Only the last
        # round may have been noted and not yet saved.
        saved = text.splitlines()[:-1]
        assert rounds.read_text().splitlines()[: len(saved)] == saved
    assert {name: content(out / name) for name in undisturbed} == undisturbed


def test_pool_replaces_a_worker_that_died_while_it_had_nothing_to_do(tmp_path: Path) -> None:
    planned = plan(Study(**STUDY), tmp_path)
    with RunPool(1) as pool:
        assert [outcome.state for outcome in run_study(planned[:1], pool)] == ["done"]
        ((process, _),) = pool._idle
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert [outcome.state for outcome in run_study(planned[1:2], pool)] == ["done"]
