"""The owner's side: starts the process that is measured, watches it, and ends it where it exceeds a bound."""

from __future__ import annotations

import multiprocessing as mp
import pickle
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from statistics import median

import torch

from widthwise.core.errors import RunError
from widthwise.engine.probe.child import WARM_UP, Job, Told, serve
from widthwise.engine.probe.memory import Footprint, footprint
from widthwise.engine.probe.records import MIB, Bound, Bounds, Measured
from widthwise.engine.processes import SCRIPT, script_hidden

POLL_SECONDS = 0.01
"""Between two looks at a process's memory: it exceeds its bound by what it takes in this time, at most."""

START_SECONDS = 300.0
"""In which a process must have imported everything, on the slowest card of the smallest device."""


def measure(job: Job, bounds: Bounds, *, patience: float, held: int | None = None) -> Measured:
    """Do a job in a fresh process and return what it took.

    The process is a new interpreter: what it has taken, nobody has taken before. A limit on its address space
    (``RLIMIT_AS``) would not do, since torch reserves addresses that it never uses; so it is watched from
    here, and ended as soon as its memory exceeds the bound, or its steps did not end in time. On a CUDA
    device torch itself refuses what exceeds the bound.

    Args:
        job: What to train.
        bounds: What it may take.
        patience: Seconds beside those that the bound allows for the steps, for all that happens once.
        held: Bytes that the process which is to train holds without it. None: those of the fresh process.

    Raises:
        RunError: if the process fails for another reason than memory or time.
    """
    room = max(0.0, bounds.memory_mib - (held or 0) / MIB)
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, job.device, room), daemon=True)
    with script_hidden(unless=type(job.objective).__module__ in SCRIPT):
        process.start()
    theirs.close()
    watched = _Watched(process, ours, bounds, held, job.device)
    allowed = patience + (WARM_UP + job.steps + 1) * bounds.seconds_per_step
    try:
        watched.wait_for_start()
        return watched.measured(pickle.dumps(job, protocol=5), allowed)
    except (EOFError, ConnectionError):
        process.join()
        if process.exitcode == -signal.SIGKILL:  # by the system, which had no more memory
            return watched.ended("memory")
        raise watched.failed(f"exit code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        ours.close()


class _Watched:
    """A process and the bounds that it is held to."""

    def __init__(
        self,
        process: SpawnProcess,
        pipe: Connection,
        bounds: Bounds,
        held: int | None,
        device: torch.device,
    ) -> None:
        self._process, self._pipe, self._bounds, self._held = process, pipe, bounds, held
        self._visible = device.type == "cpu"
        self._start = self._last = Footprint(0, 0)

    def wait_for_start(self) -> None:
        """Wait until the process has imported everything."""
        if not self._pipe.poll(START_SECONDS):
            raise RunError(
                f"a process that only imports widthwise was not ready after {START_SECONDS:g} s, but "
                "training is measured from then on. Probe while the machine has less to do.",
                stage="probe",
            )
        self._start = self._last = self._pipe.recv()

    def measured(self, message: bytes, allowed: float) -> Measured:
        """Send the process its job, and watch until it has done it or exceeds a bound."""
        deadline = time.monotonic() + allowed
        if self._taken > self._bounds.memory_mib * MIB:
            return self.ended("memory")
        self._pipe.send_bytes(message)
        while not self._pipe.poll(POLL_SECONDS):
            if self._visible:
                self._last = footprint(self._process.pid or 0) or self._last
            if self._taken > self._bounds.memory_mib * MIB:
                return self.ended("memory")
            if time.monotonic() > deadline:
                return self.ended("time")
        told: Told = self._pipe.recv()
        self._last = told.memory
        if told.problem is not None:
            raise self.failed(told.problem)
        if told.seconds is None:
            return self.ended("memory")
        seconds = median(told.seconds)
        return Measured(self._taken, self._growth, seconds, self._bounds.exceeded(self._taken, seconds))

    def ended(self, bound: Bound) -> Measured:
        """Return what was seen of a process that exceeded a bound before it was done."""
        return Measured(self._taken, self._growth, None, (bound,))

    def failed(self, problem: str) -> RunError:
        """Return the error of a process that ended for a reason which says nothing about its width."""
        return RunError(
            f"a training step failed ({problem}), but it must run to be measured. Train the model on one "
            "batch to see why.",
            stage="probe",
        )

    @property
    def _growth(self) -> int:
        return max(0, self._last.peak - self._start.now)

    @property
    def _taken(self) -> int:
        return (self._start.now if self._held is None else self._held) + self._growth
