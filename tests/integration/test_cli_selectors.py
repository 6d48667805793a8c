"""What the commands say about slices that move or are masked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from widthwise.cli import app

RUN: dict[str, Any] = {
    "task": {
        "dataset": "digits",
        "model": {"name": "mlp", "hidden": [8, 8]},
        "clients": 4,
        "partition": {"kind": "iid"},
        "limit": 200,
    },
    "capacity": {"list": [0.25, 0.5, 0.5, 0.25]},
    "method": {"name": "fedrolex"},
    "training": {"cohort": 2},
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(RUN), encoding="utf-8")
    return path


def test_coverage_counts_the_weights_that_rolling_windows_never_hold(config: Path) -> None:
    found = CliRunner().invoke(app, ["coverage", str(config), "--json"])
    lost = {row["name"]: row["never_trained"] for row in json.loads(found.stdout)["parameters"]}
    # Windows of 4 out of 8: a weight of the middle layer is held if its channels are less than 4 apart on the
    # circle of 8, which leaves out the one opposite each channel.
    assert {name: count for name, count in lost.items() if count} == {"3.weight": 8}


def test_coverage_says_why_rolling_windows_leave_weights_out(config: Path) -> None:
    found = CliRunner().invoke(app, ["coverage", str(config)])
    text = " ".join(found.stdout.split())
    assert "because no client reaches a width above 0.5, and no slice of that width ever holds them" in text


@pytest.mark.parametrize(
    ("method", "note"),
    [
        ("fiarse", "note: clients compute on the full model under a mask: multiply-accumulates do not fall"),
        ("federated-dropout", ""),
    ],
)
def test_coverage_is_complete_where_any_weight_may_be_drawn(config: Path, method: str, note: str) -> None:
    found = CliRunner().invoke(app, ["coverage", str(config), "--set", f"method.name={method}"])
    assert "Every coordinate of the model can be trained" in found.stdout
    assert " ".join(found.stderr.split()).startswith(note)
    assert bool(found.stderr) == bool(note)


def test_methods_labels_masked_compute() -> None:
    rows = json.loads(CliRunner().invoke(app, ["methods", "--json"]).stdout)
    masked = {(row["kind"], row["name"]) for row in rows if "masked compute" in row["summary"]}
    assert masked == {("selector", "magnitude"), ("method", "fiarse")}
    assert {"roll_step", "roll_direction"} == {
        option
        for row in rows
        if (row["kind"], row["name"]) == ("selector", "rolling")
        for option in row["options"]
    }
