"""What runs in the process that is measured: the local training loop, on one batch again and again."""

from __future__ import annotations

import pickle
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import Tensor

from widthwise.core.allocator import keep_freed_memory
from widthwise.core.device import upload, working_on
from widthwise.core.records import ClientTask
from widthwise.engine.probe.memory import Footprint, limit, own_footprint
from widthwise.engine.processes import die_with_parent
from widthwise.slicing import WidthSpace
from widthwise.training import ModuleCache, Objective, train

WARM_UP = 2
"""Steps that are not timed: the first ones compile kernels and take memory from the system."""


LEARNING_RATE = 1e-6
"""A step costs the same at every rate, and at this one no training leaves the finite numbers."""


@dataclass(frozen=True)
class Job:
    """A client's work on one width.

    Attributes:
        space: The width space.
        task: What a server would send. One epoch of the samples below is ``WARM_UP + steps + 1`` steps.
        inputs: Inputs of a step [B, ...].
        targets: Its targets [B].
        objective: The local objective.
        steps: Steps that are timed.
        threads: Threads of torch.
        device: Where it trains; all tensors above lie on the CPU.
    """

    space: WidthSpace
    task: ClientTask
    inputs: Tensor
    targets: Tensor
    objective: Objective
    steps: int
    threads: int
    device: torch.device

    def seconds(self) -> list[float]:
        """Train, and return the seconds of each timed step."""
        torch.set_num_threads(self.threads)
        with working_on(self.device):
            sent = self.task.params, self.task.buffers, dict(self.task.state)
            params, buffers, state = upload(sent, self.device)
            batches = _Clocked(*upload((self.inputs, self.targets), self.device))
            train(
                replace(self.task, params=params, buffers=buffers, state=state),
                space=self.space,
                module_for=ModuleCache(self.space, self.device),
                dataset=batches,
                indices=torch.arange(len(self.targets) * (WARM_UP + self.steps + 1)),
                objective=self.objective,
            )
        return [later - earlier for earlier, later in pairwise(batches.begun[WARM_UP:])]


@dataclass
class _Clocked:
    """Samples that give the same batch for each step, and note when it is asked for: a step has begun."""

    inputs: Tensor
    targets: Tensor
    begun: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        if self.inputs.is_cuda:
            torch.cuda.synchronize(self.inputs.device)  # the step before has ended there as well
        self.begun.append(time.perf_counter())
        return self.inputs.clone(), self.targets.clone()  # as gathered ones, they end with the step


@dataclass(frozen=True)
class Told:
    """What the process says of its training.

    Attributes:
        memory: What it takes, and has taken.
        seconds: Of each timed step; None where training did not end well.
        problem: Why it did not; None where memory was refused.
    """

    memory: Footprint
    seconds: list[float] | None = None
    problem: str | None = None


def serve(pipe: Connection, device: torch.device, memory_mib: float) -> None:
    """Say what a process takes that can train; receive a `Job`, do it, and say what it took.

    Args:
        pipe: To the owner, who watches this process.
        device: Where it trains.
        memory_mib: What it may take on a CUDA device, where it cannot be watched from outside.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent alone answers Ctrl-C
    threading.Thread(target=die_with_parent, daemon=True).start()
    with suppress(OSError):  # if the machine runs out of memory, the kernel ends this process first
        Path("/proc/self/oom_score_adj").write_text("1000")
    keep_freed_memory()  # as a client's process does
    _load_all_of_torch(device)
    limit(device, memory_mib)
    pipe.send(own_footprint(device))
    pipe.send(_done(pipe, device))


def _load_all_of_torch(device: torch.device) -> None:
    """Train one weight: the first step of an optimizer imports as much again, whatever the model."""
    weight = torch.ones(1, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=LEARNING_RATE, fused=True)
    weight.sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _done(pipe: Connection, device: torch.device) -> Told:
    try:
        job: Job = pickle.loads(pipe.recv_bytes())
        seconds = job.seconds()
    except Exception as error:  # also of parts and models that are the user's own
        refused = isinstance(error, MemoryError | torch.OutOfMemoryError)
        refused = refused or "DefaultCPUAllocator" in str(error)  # a RuntimeError like any other
        return Told(own_footprint(device), problem=None if refused else f"{type(error).__name__}: {error}")
    return Told(own_footprint(device), seconds)
