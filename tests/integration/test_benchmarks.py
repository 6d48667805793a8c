"""Every benchmark runs with little work, and the page can be made from what it writes."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # benchmarks are no package that is installed

from benchmarks import common, limits, page  # noqa: E402
from benchmarks.__main__ import NAMES, main  # noqa: E402
from benchmarks.common import Row  # noqa: E402


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def law(rows: Sequence[Row]) -> None:
    ratios = {(row["model"], row["width"]): row["mac_ratio"] for row in rows}
    # A perceptron 64-128-64-10: MACs 64 * 128 + 128 * 64 + 64 * 10, at half width 64 * 64 + 64 * 32 + 32 * 10
    assert ratios["mlp", 0.5] == pytest.approx((4096 + 2048 + 320) / (8192 + 8192 + 640), rel=1e-12)
    assert {row["time_ratio"] for row in rows if row["width"] == 1.0} == {1.0}
    timed(rows)


def timed(rows: Sequence[Row]) -> None:
    assert list(dict.fromkeys(row["precision"] for row in rows)) == list(common.precisions())


def memory_and_models(rows: Sequence[Row]) -> None:
    # 3x3 convolutions 1-16-16-32-32-64-64, a bias and a norm for each channel; one pixel is left of an image.
    pairs = ((1, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64))
    parameters = sum(9 * a * b + 3 * b for a, b in pairs) + 64 * 128 + 128 + 128 * 10 + 10
    assert [row["models_mib"] for row in rows] == pytest.approx([3 * parameters * 4 / 2**20], rel=1e-12)
    memory(rows)


def memory(rows: Sequence[Row]) -> None:
    assert all(row[key] > 50 for row in rows for key in ("server_mib", "worker_mib"))  # torch takes more


def ways(rows: Sequence[Row]) -> None:
    assert [row["executor"] for row in rows] == ["serial", "process", "independent copies"]


def whole(rows: Sequence[Row]) -> None:
    parts = (*limits.PARTS, limits.OTHERS, limits.BETWEEN)
    training, rounds = ([row for row in rows if row["part"] == part] for part in ("training", "round"))
    assert [sum(row[part] for part in parts) for row in training] == pytest.approx(
        [1] * len(training), abs=0.1
    )
    assert all(row["products"] > 0.02 for row in training)
    assert [row["cohort"] for row in rounds] == [4] * len(rounds)
    assert all(row["training_s"] > 0 and row["server_s"] > 0 for row in rounds)
    timed(training)
    timed(rounds)


#: What rows of some benchmarks must say besides being there; further arguments of their command lines.
CHECKS = {
    "cost_law": law,
    "cohort": memory_and_models,
    "limits": whole,
    "registered_clients": memory,
    "scaling": ways,
}
ARGUMENTS = {"scaling": ["--most", "1"]}


@pytest.mark.parametrize(
    ("name", "bfloat16"), [*((name, True) for name in NAMES), ("cost_law", False), ("limits", False)]
)
def test_benchmark_measures_and_fills_its_part_of_the_page(
    name: str,
    bfloat16: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(common, "has_bfloat16", lambda device: bfloat16)
    module = importlib.import_module(f"benchmarks.{name}")
    file = tmp_path / page.RESULTS / f"{name}.json"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", ["x.py", "--tiny", "--out", str(file), *ARGUMENTS.get(name, [])])
    add = [module.arguments] if hasattr(module, "arguments") else []
    common.main(module.__doc__, module.rows, module.table, *add)
    document = json.loads(file.read_text(encoding="utf-8"))
    assert {"commit", "command", "processor", "torch_threads"} <= set(document["environment"])
    assert document["environment"]["torch_threads"] == 1
    numbers = [value for row in document["rows"] for value in row.values() if isinstance(value, float)]
    assert numbers
    assert all(value >= 0 for value in numbers)
    CHECKS.get(name, len)(document["rows"])
    part = page.PARTS[name]
    table = module.table(document)
    assert table.count("\n") >= 2
    assert ("bf16 was not tried" in table) == (not bfloat16)
    assert capsys.readouterr().out.endswith(f"{table}\n")
    assert f"{table}\n\n[Figures](results/benchmarks/{name}.json): " in page._text(tmp_path, name, part)
    assert (name in page.drawings(tmp_path)) == (part.figure is not None)


def test_command_line_refuses_a_folder_that_is_not_there_and_an_unknown_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["x.py", "--out", str(tmp_path / "no" / "x.json")])
    with pytest.raises(SystemExit, match="2"):
        common.main("", lambda options: iter(()), lambda document: "")
    assert "but that folder is not there. Make it first." in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["x.py", "cost"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert (
        "benchmark is 'cost', but no such name is known. Did you mean 'cost_law'?" in capsys.readouterr().err
    )
