"""What users are told of bf16 where the device has no instructions for it; nothing else changes."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

import widthwise as ww
from widthwise.cli import app

RUN: dict[str, Any] = {
    "task": {
        "dataset": "digits",
        "model": {"name": "mlp", "hidden": [8]},
        "clients": 2,
        "partition": {"kind": "iid"},
        "limit": 40,
    },
    "method": {"name": "heterofl"},
    "training": {"rounds": 1, "cohort": 2, "local_epochs": 1},
    "engine": {"executor": "serial", "precision": "bf16"},
}
LINE = (
    "warning: engine.precision is 'bf16', but this CPU has no instructions for bfloat16 and emulates it, "
    "more slowly than float32. Set engine.precision to fp32: results differ by rounding only."
)


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def on_a_cpu(monkeypatch: pytest.MonkeyPatch, known: bool | None) -> None:
    monkeypatch.setattr("widthwise.engine.config.has_bfloat16", lambda device: known)


@pytest.fixture(autouse=True)
def _quick_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widthwise.report.build_report", lambda runs, out, title=None: out)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(RUN), encoding="utf-8")
    return file


def test_run_says_that_bf16_is_emulated_and_trains_the_same(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, stored = {}, {}
    for known in (True, False, None):
        on_a_cpu(monkeypatch, known)
        out = tmp_path / str(known)
        result = call("run", config, "--out", out, "--json")
        assert result.exit_code == 0, result.output
        said[known] = result.stderr.count(LINE)
        row = {**json.loads(result.stdout), "seconds": 0}
        stored[known] = row, sorted(str(path.relative_to(out)) for path in out.rglob("*"))
    assert said == {True: 0, False: 1, None: 0}
    assert stored[True] == stored[False] == stored[None]


def test_run_in_fp32_says_nothing(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_cpu(monkeypatch, False)
    assert "bfloat16" not in call("run", config, "--set", "engine.precision=fp32", "--dry-run").output


def test_dry_run_says_it_once_for_a_run_and_for_all_runs_of_a_study(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "study.yaml"
    methods = {"a": {}, "b": {"engine.precision": "fp32"}, "c": {"method.name": "uniform"}}
    study.write_text(yaml.safe_dump({"base": RUN, "methods": methods}), encoding="utf-8")
    on_a_cpu(monkeypatch, False)
    for command, file, count in (("run", config, 1), ("study", study, 3)):
        result = call(command, file, "--dry-run", "--json")
        assert result.exit_code == 0, result.output
        assert result.stderr.splitlines() == [LINE]
        assert len(json.loads(result.stdout)["runs"]) == count


def test_run_in_python_warns_where_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_cpu(monkeypatch, False)
    with pytest.warns(UserWarning, match="this CPU has no instructions for bfloat16") as told:
        ww.run(ww.RunConfig(**RUN), tmp_path / "x")
    assert [warning.filename for warning in told] == [__file__]
    on_a_cpu(monkeypatch, True)
    with warnings.catch_warnings(action="error"):
        ww.run(ww.RunConfig(**RUN), tmp_path / "y")
