"""The public ``run`` from a user's own script, in worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

CONFIG = """
    task={"dataset": "digits", "model": {"name": "mlp", "hidden": [8]}, "clients": 4,
          "partition": {"kind": "iid"}, "limit": 80},
    training={"rounds": 2, "cohort": 2, "local_epochs": 1, "momentum": 0.0},
    engine={"executor": sys.argv[1], "workers": 2},
"""
PLAIN = f"""
import sys
import widthwise as ww
result = ww.run(ww.RunConfig(method={{"name": "hasfl"}}, {CONFIG}), out="out")
print("rounds:", result.result["rounds"])
"""
OWN_PART = f"""
import sys
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
        [sys.executable, "script.py", "process"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "rounds: 2\n"


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install '.[ray]'")
def test_run_trains_in_a_ray_of_its_own_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(OWN_PART.replace('if __name__ == "__main__":', "if True:"))
    with TemporaryDirectory(prefix="ray-", dir="/tmp") as place:  # paths of sockets must be short
        done = subprocess.run(
            [sys.executable, "script.py", "ray"],
            cwd=tmp_path,
            env={**os.environ, "RAY_TMPDIR": place},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "rounds: 2\n"
        assert os.listdir(place) == []
        assert [line for line in command_lines() if place in line] == []


def command_lines() -> list[str]:
    """What runs on this machine, or nothing where that is not known."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_text())
        except OSError:  # it has ended
            continue
    return found
