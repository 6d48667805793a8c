"""The public ``run`` from a user's own script, in worker processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """
    task={"dataset": "digits", "model": {"name": "mlp", "hidden": [8]}, "clients": 4,
          "partition": {"kind": "iid"}, "limit": 80},
    training={"rounds": 2, "cohort": 2, "local_epochs": 1, "momentum": 0.0},
    engine={"executor": "process", "workers": 2},
"""
PLAIN = f"""
import widthwise as ww
result = ww.run(ww.RunConfig(method={{"name": "hasfl"}}, {CONFIG}), out="out")
print("rounds:", result.result["rounds"])
"""
OWN_PART = f"""
import widthwise as ww
from widthwise.training import OBJECTIVES, Objective

class Mine(Objective):
    pass

OBJECTIVES.add("mine", Mine, summary="my own", source="me")
if __name__ == "__main__":
    result = ww.run(ww.RunConfig(method={{"name": "hasfl", "objective": "mine"}}, {CONFIG}), out="out")
    print("rounds:", result.result["rounds"])
"""


@pytest.mark.parametrize("script", [PLAIN, OWN_PART], ids=["without a guard", "with a part of its own"])
def test_run_trains_in_worker_processes_from_a_script(tmp_path: Path, script: str) -> None:
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "rounds: 2\n"
