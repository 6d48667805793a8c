"""The command ``widthwise probe``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from widthwise.cli import app
from widthwise.engine.probe import Bounds, capacity
from widthwise.engine.probe.records import MIB, Measured


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["probe", *map(str, arguments)])


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let a step take 100 MiB and a second at full width, and less in proportion; collect what is asked."""
    jobs: list[Any] = []

    def measure(job: Any, bounds: Bounds, *, patience: float, held: int | None) -> Measured:
        jobs.append(job)
        width = job.task.spec.width
        growth = int(100 * MIB * width)
        if growth + 200 * MIB > bounds.memory_mib * MIB:
            return Measured(growth + 200 * MIB, growth, None, ("memory",))
        return Measured(growth + 200 * MIB, growth, width, bounds.exceeded(growth + 200 * MIB, width))

    monkeypatch.setattr(capacity, "measure", measure)
    return jobs


def test_probe_shows_each_width_and_the_answer(measured: list[Any]) -> None:
    result = call(
        "mlp", "--memory-mb", 290, "--seconds-per-step", 0.6, "--widths", "0.25,0.5,0.75,1", "--batch-size", 7
    )
    assert result.exit_code == 0, result.output
    rows = [
        [cell.strip() for cell in line.split("│")] for line in re.findall(r"^│(.*)│$", result.stdout, re.M)
    ]
    assert [(row[0], row[3], row[4], row[5], row[6]) for row in rows] == [
        ("0.25", "225", "25", "0.25", "yes"),
        ("0.5", "250", "50", "0.5", "yes"),
        ("0.75", "275", "75", "0.75", "no: time"),
        ("1", "> 300", "> 100", "-", "no: memory"),
    ]
    text = " ".join(result.stdout.split())
    assert "The largest width that fits 290 MiB and 0.6 s a step is 0.5." in text
    assert [len(job.targets) for job in measured] == [7] * 4
    assert {job.threads for job in measured} == {1}
    assert all(int(job.targets.max()) == 6 for job in measured)  # classes by turns


def test_probe_prints_nothing_but_json_when_asked(measured: list[Any]) -> None:
    result = call("mlp", "--memory-mb", 1000, "--seconds-per-step", 0.5, "--threads", 2, "--json")
    data = json.loads(result.stdout)
    assert result.exit_code == 0
    assert data["width"] == 0.5  # mlp: 128 and 64 channels, so every 64th is a level
    assert (data["memory_mib"], data["seconds_per_step"]) == (1000, 0.5)
    assert (data["model"], data["batch_size"], data["threads"], data["device"]) == ("mlp", 32, 2, "cpu")
    assert {row["width"]: row["fits"] for row in data["rows"]}[0.515625] is False
    assert set(data["rows"][0]) == {
        "width", "params", "macs", "peak_mib", "growth_mib", "seconds", "exceeds", "fits"
    }  # fmt: skip


def test_probe_exits_with_1_and_the_reason_when_nothing_fits(measured: list[Any]) -> None:
    result = call("mlp", "--memory-mb", 100, "--seconds-per-step", 1, "--widths", "0.5", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["width"] is None
    assert (
        "error: Not even width 0.5 fits 100 MiB and 1 s a step: its process takes at least 250 MiB (50 of "
        "them by training). Raise the bounds, or lower --batch-size."
    ) in result.stderr


def test_probe_trains_a_users_model_with_tokens(
    measured: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "probed_nets.py").write_text(
        "from torch import nn\n"
        "def words():\n"
        "    return nn.Sequential(nn.Embedding(2, 8), nn.Flatten(), nn.Linear(40, 3))\n"
        "class Two(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(8, 2)\n"
        "    def forward(self, a, b):\n"
        "        return self.fc(a + b)\n"
        "def grid():\n"
        "    return nn.Conv2d(1, 2, 1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    bounds = ("--memory-mb", 1000, "--seconds-per-step", 1)
    result = call("probed_nets:words", "--shape", "5", "--dtype", "int64", "--widths", "1", *bounds)
    assert result.exit_code == 0, result.output
    assert measured[0].inputs.shape == (32, 5)
    assert measured[0].inputs.unique().tolist() == [0, 1]
    assert measured[0].targets.tolist()[:4] == [0, 1, 2, 0]

    two = call("probed_nets:Two", "--shape", "8", "--shape", "8", *bounds)
    assert (two.exit_code, len(measured)) == (2, 1)
    assert "takes several inputs or named ones, and a training step gives it one tensor" in two.stderr
    grid = call("probed_nets:grid", "--shape", "1,4,4", *bounds)
    assert (grid.exit_code, len(measured)) == (2, 1)
    assert "its output has the shape [2, 2, 4, 4], and training needs scores [batch, classes]" in grid.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory-mb", 100], "Missing option '--seconds-per-step'"),
        (["--memory-mb", 0, "--seconds-per-step", 1], "the bound of memory is 0, but it must be above 0"),
        (["--memory-mb", 9, "--seconds-per-step", "nan"], "the bound of seconds per step is nan, but"),
        (["--memory-mb", 9, "--seconds-per-step", 1, "--batch-size", 0], "'--batch-size': 0 is not in the"),
        (["--memory-mb", 9, "--seconds-per-step", 1, "--patience", 0], "patience is 0 s, but it must be"),
        (["--memory-mb", 9, "--seconds-per-step", 1, "--widths", "a"], "'a' is no list of numbers"),
        (["--memory-mb", 9, "--seconds-per-step", 1, "--widths", "0"], "width is 0.0, but a width is in (0"),
        (
            ["--memory-mb", 9, "--seconds-per-step", 1, "--device", "gpu"],
            "device is 'gpu', but clients train",
        ),
        (["--memory-mb", 9, "--seconds-per-step", 1, "--batch-size", 10**11], "take 24414062 MiB then and"),
        (["--memory-mb", 9, "--seconds-per-step", 1, "--task", "digit"], "is 'digit', but no such name"),
    ],
)
def test_probe_exits_with_2_and_one_message(
    measured: list[Any], arguments: list[object], message: str
) -> None:
    result = call("mlp", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr
    assert measured == []


def test_probe_measures_a_registered_model() -> None:
    result = call(
        *("cnn-small", "--memory-mb", 100_000, "--seconds-per-step", 100),
        *("--widths", "0.25", "--batch-size", 2, "--steps", 1, "--json"),
    )
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["rows"]
    assert row["fits"]
    assert row["peak_mib"] > row["growth_mib"] > 0
    assert row["seconds"] > 0
