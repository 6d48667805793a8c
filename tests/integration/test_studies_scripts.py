"""Studies from a user's own script, in worker processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STUDY = """
    base={"task": {"dataset": "digits", "model": {"name": "mlp", "hidden": [8]}, "clients": 4, "limit": 80,
                   "partition": {"kind": "iid"}},
          "training": {"rounds": 1, "cohort": 2, "local_epochs": 1, "momentum": 0.0},
          "engine": {"executor": "process", "workers": 1}},
"""
PLAIN = f"""
from pathlib import Path
from widthwise.studies import RunPool, Study, plan, run_study

study = Study({STUDY} methods={{"a": {{"method.name": "heterofl"}}}}, seeds=[1, 2])
with RunPool(2) as pool:
    print(*(outcome.error or outcome.state for outcome in run_study(plan(study, Path("out")), pool)))
"""
# A lone run starts workers of its own, which need the script as well.
OWN_METHOD = f"""
from pathlib import Path
from widthwise.methods import METHODS, Composition
from widthwise.studies import RunPool, Study, plan, run_study
from widthwise.training import OBJECTIVES, Objective

class Mine(Objective):
    pass

OBJECTIVES.add("mine", Mine, summary="my own", source="me")
METHODS.add("own", Composition(policy="capacity", objective="mine"), summary="my own", source="me")
if __name__ == "__main__":
    study = Study({STUDY} methods={{"a": {{"method.name": "own"}}}}, seeds=[1, 2])
    with RunPool(1) as pool:
        print(*(outcome.error or outcome.state for outcome in run_study(plan(study, Path("out")), pool)))
"""


@pytest.mark.parametrize("script", [PLAIN, OWN_METHOD], ids=["without a guard", "with a method of its own"])
def test_pool_trains_a_study_from_a_script(tmp_path: Path, script: str) -> None:
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done done\n"
