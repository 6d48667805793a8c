"""What benchmarks share: timing in turn, tables, memory of processes, synthetic work."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from widthwise.engine.environment import environment

sys.path.insert(0, str(Path(__file__).parents[2]))  # benchmarks are no package that is installed

from benchmarks import common
from benchmarks.common import grid, in_turn, new_document, precisions, provenance, with_untried
from benchmarks.memory import descendants, peak_bytes, proportional_bytes
from benchmarks.synthetic import DIGITS, TEXT, Watch, Work, in_fresh_processes, watched


def test_in_turn_runs_the_ways_alternately_and_leaves_the_first_run_out() -> None:
    now, calls = 0.0, []

    def way(name: str, seconds: float) -> Any:
        def call() -> None:
            nonlocal now
            # The first call takes a hundred times as long.
            now += seconds * (100 if name not in calls else 1)
            calls.append(name)

        return call

    found = in_turn(2, {"a": way("a", 1.0), "b": way("b", 3.0)}, clock=lambda: now)
    assert found == {"a": [1.0, 1.0], "b": [3.0, 3.0]}
    assert calls == ["a", "b"] * 3


def test_grid_is_a_table_of_markdown() -> None:
    assert grid(("a", "b"), [(1, "x"), (2, "y")]) == "| a | b |\n| --- | --- |\n| 1 | x |\n| 2 | y |"


@pytest.mark.parametrize(
    ("known", "timed", "machine", "said"),
    [
        (True, ("fp32", "bf16"), ", native bfloat16)", "| a |"),
        (None, ("fp32", "bf16"), ")", "| a |"),
        (
            False,
            ("fp32",),
            ", no bfloat16)",
            "| a |\n\nbf16 was not tried: this CPU has no instructions for bfloat16.",
        ),
    ],
)
def test_bf16_is_timed_where_the_cpu_has_it_and_the_result_says_whether_it_has(
    known: bool | None, timed: tuple[str, ...], machine: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "has_bfloat16", lambda device: known)
    assert precisions() == timed
    document = new_document()
    assert f"({torch.backends.cpu.get_cpu_capability()}{machine}, load " in provenance(document)
    assert with_untried("| a |", document) == said
    del document["bfloat16"]  # as in results of older versions
    assert with_untried("| a |", document) == "| a |"
    assert f"({torch.backends.cpu.get_cpu_capability()}), load " in provenance(document)


def test_memory_counts_the_whole_process_tree() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as child:
        while len(family := descendants(child.pid)) < 2:
            assert child.poll() is None
        assert all(proportional_bytes(pid) > 0 for pid in family)
        child.communicate(b"\n")
    assert proportional_bytes(child.pid) == peak_bytes(child.pid) == 0


def test_peak_stays_when_memory_is_given_back() -> None:
    size = 300 * 2**20
    before = peak_bytes(os.getpid())
    big = torch.ones(size, dtype=torch.uint8)
    most = peak_bytes(os.getpid())
    del big
    assert most >= max(before, size)
    assert peak_bytes(os.getpid()) >= most - 2**20  # Linux counts pages in batches


def threads_and_process(number: int) -> tuple[int, int, int]:
    return number, torch.get_num_threads(), os.getpid()


def test_fresh_processes_are_new_and_of_one_thread() -> None:
    found = in_fresh_processes(threads_and_process, [7, 8])
    assert [(number, threads) for number, threads, _ in found] == [(7, 1), (8, 1)]
    assert len({os.getpid(), *(pid for _, _, pid in found)}) == 3


def test_watch_leaves_out_the_first_and_the_last_round() -> None:
    watch = Watch()
    watch.ends = [(10.0, 1.0), (12.0, 2.0), (15.0, 2.5), (99.0, 50.0)]
    assert watch.seconds == [2.0, 3.0]
    assert watch.cpu_seconds == [1.0, 0.5]


def test_watch_looks_at_workers_in_the_last_round() -> None:
    watch = Watch()
    watch.on_start(SimpleNamespace(training=SimpleNamespace(rounds=2)), 0)  # type: ignore[arg-type]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        watch.on_round(SimpleNamespace(round=0))  # type: ignore[arg-type]
        assert watch.worker_bytes == 0
        watch.on_round(SimpleNamespace(round=1))  # type: ignore[arg-type]
        assert watch.worker_bytes >= peak_bytes(child.pid) > 0
        child.communicate(b"\n")


@pytest.mark.parametrize("pool", [None, 30])
def test_work_gives_every_client_its_samples(pool: int | None) -> None:
    work = Work("w", "mlp", DIGITS, clients=6, cohort=2, samples=10, batch=5, rounds=3, pool=pool)
    fed = work.federation(executor="serial")
    held = torch.cat([fed.task.partition.client(i) for i in range(6)])
    assert len(held) == 60
    assert held.unique().tolist() == list(range(pool or 60)) == list(range(len(fed.task.train)))
    assert len(watched(fed).seconds) == 1


def test_work_of_text_trains() -> None:
    options = {"embedding": 2, "hidden": 3, "layers": 1}
    work = Work("w", "gru-lm", TEXT, 2, cohort=2, samples=2, batch=2, rounds=3, options=options)
    seconds = watched(work.federation(executor="serial")).cpu_seconds
    assert len(seconds) == 1
    assert seconds[0] > 0


@pytest.mark.parametrize(
    ("module", "shown"),
    [
        (None, "shown.py x"),
        ("benchmarks.page", "python -m benchmarks.page x"),
        ("benchmarks.peers.__main__", "python -m benchmarks.peers x"),
    ],
)
def test_environment_says_how_the_process_was_started(
    module: str | None, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = None if module is None else ModuleSpec(module, None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    monkeypatch.setattr(sys, "argv", ["/somewhere/shown.py", "x"])
    assert environment()["command"] == shown
