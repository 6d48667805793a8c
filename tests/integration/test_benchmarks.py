"""Every benchmark runs with little work, and the page can be made from what it writes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # benchmarks are no package that is installed

from benchmarks import common, page  # noqa: E402
from benchmarks.__main__ import NAMES  # noqa: E402


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def measured(name: str, docs: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Run a benchmark as its command line does and return its rows."""
    module = importlib.import_module(f"benchmarks.{name}")
    file = docs / page.RESULTS / f"{name}.json"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--tiny", "--out", str(file)])
    add = [module.arguments] if hasattr(module, "arguments") else []
    common.main(module.__doc__, module.rows, module.table, *add)
    document = json.loads(file.read_text(encoding="utf-8"))
    assert {"commit", "command", "processor", "torch_threads"} <= set(document["environment"])
    assert document["environment"]["torch_threads"] == 1
    rows: list[dict[str, Any]] = document["rows"]
    return rows


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_measures_and_fills_its_part_of_the_page(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = measured(name, tmp_path, monkeypatch)
    assert rows
    numbers = [value for row in rows for value in row.values() if isinstance(value, float)]
    assert numbers
    assert all(value >= 0 for value in numbers)
    part = page.PARTS[name]
    text = page._text(tmp_path, name, part)
    (table,) = [block for block in capsys.readouterr().out.split("\n\n") if "| --- |" in block][:1]
    assert table.splitlines()[-1] in text
    assert (name in page.drawings(tmp_path)) == (part.figure is not None)


def test_cost_law_counts_what_slices_compute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = measured("cost_law", tmp_path, monkeypatch)
    ratios = {(row["model"], row["width"]): row["mac_ratio"] for row in rows}
    # A perceptron 64-128-64-10: 64 * 128 + 128 * 64 + 64 * 10 MACs, at half width 64 * 64 + 64 * 32 + 32 * 10.
    assert ratios["mlp", 0.5] == pytest.approx((4096 + 2048 + 320) / (8192 + 8192 + 640), rel=1e-12)
    assert {row["time_ratio"] for row in rows if row["width"] == 1.0} == {1.0}
    assert {row["precision"] for row in rows} == {"fp32", "bf16"}


def test_cohort_counts_the_models_that_it_does_not_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = measured("cohort", tmp_path, monkeypatch)
    # 3x3 convolutions 1-16-16-32-32-64-64, a bias and a norm for each channel; one pixel is left of an image.
    convolutions = sum(
        9 * a * b + 3 * b for a, b in ((1, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64))
    )
    parameters = convolutions + 64 * 128 + 128 + 128 * 10 + 10
    for row in rows:
        assert row["models_mib"] == pytest.approx(row["cohort"] * parameters * 4 / 2**20, rel=1e-12)
        assert row["server_mib"] > 50  # an interpreter with torch
        assert row["worker_mib"] > 50
    assert [row["method"] for row in rows[::2]] == [
        "slices",
        "with the estimator",
        "with control variates",
    ]


def test_scaling_runs_every_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    rows = measured("scaling", tmp_path, monkeypatch)
    assert [(row["executor"], row["processes"]) for row in rows] == [
        ("serial", 1),
        ("process", 1),
        ("process", 2),
        ("independent copies", 1),
        ("independent copies", 2),
    ]


def test_command_line_refuses_a_folder_that_is_not_there_and_an_unknown_benchmark(tmp_path: Path) -> None:
    def refused(*command: str) -> str:
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", *command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 2
        return run.stderr

    file = str(tmp_path / "no" / "x.json")
    assert "that folder is not there. Make it first." in refused("benchmarks.overhead", "--out", file)
    assert "benchmark is 'cost', but no such name is known. Did you mean 'cost_law'?" in refused(
        "benchmarks", "cost"
    )
