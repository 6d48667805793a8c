"""``benchmarks/gpu.py`` in miniature on the CPU, so that nothing but the device is new where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    environment.pop("WIDTHWISE_DATA", None)
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=250)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_gpu_benchmark_ends_with_code_2_when_there_is_no_gpu() -> None:
    done = run()
    assert done.returncode == 2
    assert "device is 'cuda:0', but torch" in done.stderr


def test_gpu_benchmark_runs_every_part_in_miniature_on_the_cpu(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    done = run("--device", "cpu", "--tiny", "--out", str(file))
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text(encoding="utf-8"))
    assert not found["failed"]
    rows = found["equality"]
    assert {row["objective"] for row in rows} == {
        "plain", "proximal", "control variates", "distillation, round", "distillation, step", "masks",
        "rolling windows",
    }  # fmt: skip
    assert all(row["difference"] == 0 and row["repeats_itself"] for row in rows)  # a CPU equals itself
    assert all(row.get("processes_equal_serial", True) for row in rows)
    assert [row["width"] for row in found["clients"]] == [0.25, 0.5, 0.75, 1.0] * 2
    assert all(row["share_of_peak"] > 0 for row in found["clients"])
    assert {row["model"] for row in found["stacks"]} == {"mlp", "cnn"}
    assert found["processes"][0]["samples_per_second"] > 0
    assert found["protocol"]["minutes_for_200_rounds"] > 0
