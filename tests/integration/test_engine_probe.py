"""A probe's processes: what they are found to take, and how those are ended that take too much."""

from __future__ import annotations

import mmap
import multiprocessing as mp
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from probe_objectives import Broken, Hanging, Hoarding, Killed, Refused
from torch import nn

import widthwise as ww
from widthwise.core.errors import RunError
from widthwise.engine.probe import Bounds, Footprint, ProbeResult, footprint, probe
from widthwise.engine.probe.memory import limit, own_footprint
from widthwise.engine.probe.records import MIB
from widthwise.training import Objective
from widthwise.training.control_variates import ControlVariates

PAGE = Path(__file__).parents[2] / "docs" / "capacity.md"
LOOSE = Bounds(100_000, 1000)


NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")


def probed(
    bounds: Bounds, objective: Objective | None = None, *, layers: int = 0, **options: Any
) -> ProbeResult:
    inner = [part for _ in range(layers) for part in (nn.Linear(1024, 1024), nn.ReLU())]
    net = nn.Sequential(*inner, nn.Linear(1024, 8), nn.ReLU(), nn.Linear(8, 4))
    space = ww.trace(net, torch.zeros(2, 1024))
    batch = torch.rand(4, 1024), torch.arange(4)
    found = probe(space, net, batch, bounds, objective=objective, steps=2, **options)
    assert not mp.active_children()
    return found


def test_probe_counts_received_trained_gradient_and_momentum() -> None:
    found = probed(LOOSE, layers=8, widths=(0.25, 1))
    assert found.width == 1
    narrow, wide = found.rows
    assert wide.seconds is not None
    assert narrow.seconds is not None
    assert min(wide.seconds, narrow.seconds) > 0
    # A step holds four tensors of a parameter's size: received, trained, gradient and momentum. All else
    # (libraries, kernels, a batch of 4) is alike in both processes, but for holes in the heap, less than one.
    model = 4 * (wide.params - narrow.params) / MIB
    assert 3.9 < (wide.growth_mib - narrow.growth_mib) / model < 5
    assert wide.peak_mib - wide.growth_mib > 50  # torch alone


def test_probe_finds_no_width_when_a_step_must_take_no_time() -> None:
    # With an objective that has states, and on top of what another process holds.
    found = probed(Bounds(100_000, 1e-9), ControlVariates(force_momentum=True), held=1000 * MIB)
    (row,) = found.rows
    assert found.width is None
    assert row.exceeds == ("time",)
    assert row.seconds is not None
    assert row.growth_mib > 0
    assert row.peak_mib == pytest.approx(1000 + row.growth_mib)


def test_probe_finds_no_width_when_libraries_alone_exceed_the_bound() -> None:
    (row,) = probed(Bounds(20, 1000)).rows
    assert (row.exceeds, row.seconds) == (("memory",), None)
    assert row.peak_mib > 50


def test_process_is_killed_when_it_exceeds_the_memory() -> None:
    held = 100 * MIB
    (row,) = probed(Bounds(300, 1000), Hoarding(), widths=(1,), held=held).rows
    assert (row.exceeds, row.seconds) == (("memory",), None)
    assert row.growth_mib > 200
    assert row.growth_mib < 700  # it would have gone on to 2048


def test_process_is_killed_when_it_hangs() -> None:
    (row,) = probed(Bounds(100_000, 0.01), Hanging(), widths=(1,), patience=0.5).rows
    assert (row.exceeds, row.seconds) == (("time",), None)


@pytest.mark.parametrize("objective", [Refused(), Killed()])
def test_width_does_not_fit_when_the_system_refuses_memory(objective: Objective) -> None:
    (row,) = probed(LOOSE, objective, widths=(1,)).rows
    assert (row.exceeds, row.seconds) == (("memory",), None)


def test_probe_fails_when_a_step_fails_for_another_reason() -> None:
    with pytest.raises(RunError, match=r"stage probe: a training step failed \(.*ValueError: no such layer"):
        probed(LOOSE, Broken(), widths=(1,))


@NEEDS_CUDA
def test_probe_counts_tensors_of_a_cuda_device_and_stops_at_the_bound() -> None:
    found = probed(LOOSE, layers=8, widths=(0.25, 1), device="cuda")
    narrow, wide = found.rows
    assert found.width == 1
    model = 4 * (wide.params - narrow.params) / MIB
    assert 3.9 < (wide.growth_mib - narrow.growth_mib) / model < 5
    between = (narrow.peak_mib + wide.peak_mib) / 2
    bounded = probed(Bounds(between, 1000), layers=8, widths=(0.25, 1), device="cuda")
    assert bounded.width == 0.25
    assert bounded.rows[1].exceeds == ("memory",)


def test_own_footprint_is_that_of_the_tensors_on_a_cuda_device(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda", 1)
    asked: list[tuple[float, torch.device]] = []
    monkeypatch.setattr(torch.cuda, "memory_allocated", {device: 7}.__getitem__)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", {device: 9}.__getitem__)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda of: SimpleNamespace(total_memory=100 * MIB)
    )
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda part, of: asked.append((part, of))
    )
    assert own_footprint(device) == Footprint(7, 9)
    limit(device, 25)
    limit(device, 500)  # more than there is
    assert asked == [(0.25, device), (1.0, device)]


def test_capacity_page_example_runs_without_a_main_guard(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    script = tmp_path / "script.py"
    script.write_text(f"print('begun')\n{shown}", encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "begun\nThe largest width that fits 2048 MiB and 1 s a step is 1.\n"


def test_footprint_grows_with_what_is_touched_and_keeps_its_peak() -> None:
    before = footprint()
    assert before is not None
    held = mmap.mmap(-1, 64 * MIB)  # not of the heap, which may have room
    held.write(os.urandom(64 * MIB))
    with_it = footprint(os.getpid())
    assert with_it is not None
    assert with_it.now - before.now > 60 * MIB
    held.close()
    after = footprint()
    assert after is not None
    assert after.peak >= with_it.now - MIB  # the kernel's counts lag by a few pages
    assert after.now < with_it.now - 60 * MIB


def test_footprint_of_a_process_that_has_ended_is_nothing() -> None:
    ended = os.fork()
    if not ended:
        os._exit(0)
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
    assert footprint(ended) is None  # it waits for its parent
    os.waitpid(ended, 0)
    assert footprint(ended) is None
