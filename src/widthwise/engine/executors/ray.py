"""Trains the cohort in actors of Ray: on this machine, or on the nodes of a cluster."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import threading
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import ceil, floor
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch

from widthwise.core.errors import ConfigError, RunError
from widthwise.core.records import Answer
from widthwise.core.recycled import Recycled
from widthwise.engine.codec import decode_answers, encode_answers
from widthwise.engine.executors.handout import WINDOW, decode_failure, encode_failure, in_order
from widthwise.engine.executors.packing import Packed, pack, unpack
from widthwise.engine.round import Assignment, Broadcast
from widthwise.engine.worker import ClientRunner, Stack

LOSSES = 3
"""How often a stack's worker may be lost in a round, and each worker while it starts."""

START_SECONDS = 300
"""How long a round waits for a first worker while there is none."""

Message = bytes | pickle.PickleBuffer
"""An encoded failure, or encoded reports in memory that Ray does not copy."""


class _Job(NamedTuple):
    number: int
    stack: Stack


class RayExecutor:
    """One actor per worker, with one core and one thread; each takes the next client as soon as it is free.

    On CUDA devices an actor also asks for its share of one (`gpu_share`), and sees that one alone.

    Data, partition, width space and objective are stored in Ray once, the global tensors once a round; the
    actors of a node read both where they lie. The stack of an actor that is lost is trained again by another
    one, which gives the same bits.

    A process that is connected to Ray already keeps this connection, and leaves it open. Else the executor
    connects to ``address``, or starts a Ray of its own that ends with the run.

    Args:
        runner: Copied into every worker once.
        workers: Number of actors. Where a cluster has fewer free cores, those that found one work.
        address: ``auto`` or host:port of a cluster that this machine is a node of; None for a Ray of its own.

    Raises:
        ConfigError: if Ray is not installed.
    """

    def __init__(self, runner: ClientRunner, workers: int, address: str | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise ConfigError(
                "engine.executor is 'ray', but the package 'ray' is not installed. "
                "Run: pip install 'widthwise[ray]'"
            ) from error
        self._ray: Any = ray
        self._runner, self._workers, self._address = runner, workers, address
        self._open = ExitStack()
        self._stored: Any = None
        self._broadcast: Any = None
        self._round = 0  # of this executor: tells actors when the global tensors are new
        self._gpu = 0.0
        self._todo: deque[_Job] = deque()
        self._idle: list[Any] = []
        #: What an actor was asked -> the actor, and the job; None where it has still to start.
        self._asked: dict[Any, tuple[Any, _Job | None]] = {}
        self._losses: Counter[int | None] = Counter()
        self._recycled = Recycled()

    def __enter__(self) -> Self:
        if not self._ray.is_initialized():
            self._connect()
        return self

    def _connect(self) -> None:
        try:
            with ExitStack() as opened:
                options = self._options(opened)
                opened.callback(self._ray.shutdown)
                with _own_sigterm_handler():
                    self._ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
                self._open = opened.pop_all()
        except (OSError, RuntimeError, ValueError) as error:
            done, command = ("started", "start --head") if self._address is None else ("reached", "status")
            raise RunError(
                f"engine.address is {self._address!r}, but Ray cannot be {done} ({error}). "
                f"Run `ray {command}` on this machine: it says why.",
                stage="start",
            ) from error

    def _options(self, opened: ExitStack) -> dict[str, Any]:
        if self._address is not None:
            if self._address != "auto":
                _knock(self._address)
            return {"address": self._address}
        # A folder of its own, which is removed with all logs. Paths of sockets must be short.
        folder = TemporaryDirectory(prefix="ray-", dir=os.environ.get("RAY_TMPDIR", "/tmp"))
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it reports to the makers of Ray
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as later versions do
        return {
            "address": "local",
            "num_cpus": self._workers,
            "include_dashboard": False,
            "_temp_dir": opened.enter_context(folder),
        }

    def run(self, broadcast: Broadcast, assignments: Iterable[Assignment]) -> Iterator[Answer]:
        """Yield the reports in the order of the assignments.

        Raises:
            RunError: if a client fails, its worker is lost again and again, or no worker can start.
        """
        if self._stored is None:
            if self._runner.device.type == "cuda":
                gpus = int(self._ray.cluster_resources().get("GPU", 0))
                self._gpu = gpu_share(self._workers, gpus)
            self._stored = self._ray.put(self._packed_runner())
            for _ in range(self._workers):
                self._start()
        self._broadcast = self._ray.put(pack(broadcast))
        self._round += 1
        self._losses.clear()
        yield from in_order(self, self._runner.stacks(assignments), WINDOW * self._workers)

    def _packed_runner(self) -> Packed:
        try:
            return pack(
                self._runner.at(0)
            )  # whatever its number, Ray shows an actor its own device as the first
        except Exception as error:
            raise RunError(
                f"the data set or objective cannot be sent to workers ({type(error).__name__}: {error}), but "
                "executor 'ray' must. Define it in a module, or write engine.executor: serial.",
                stage="start",
            ) from error

    def _start(self) -> None:
        actor = self._ray.remote(num_cpus=1, num_gpus=self._gpu)(_Worker).remote()
        self._asked[actor.load.remote(self._stored)] = actor, None

    @property
    def free(self) -> bool:
        """Whether a worker has nothing to do, or would have once it has started."""
        return len(self._todo) + sum(job is not None for _, job in self._asked.values()) < self._workers

    def give(self, number: int, stack: Stack) -> None:
        """Send a stack to an idle worker, or keep it until there is one."""
        self._todo.append(_Job(number, stack))
        self._hand_out()

    def _hand_out(self) -> None:
        while self._todo and self._idle:
            actor, job = self._idle.pop(), self._todo.popleft()
            stack = pickle.dumps(job.stack, protocol=5)
            self._asked[actor.work.remote(self._broadcast, self._round, stack)] = actor, job

    def trained(self) -> list[tuple[int, Sequence[Answer]]]:
        """Wait until an actor is done, has started or is lost; return number and reports of what is done."""
        nobody = all(job is None for _, job in self._asked.values())
        done, _ = self._ray.wait(list(self._asked), timeout=START_SECONDS if nobody else None)
        if not done:
            raise RunError(
                f"no worker has started in {START_SECONDS} s, but each needs a free core of the Ray cluster"
                f"{f' and {self._gpu:g} of a GPU' if self._gpu else ''}. "
                "Look at `ray status`, and lower engine.workers or add nodes.",
                stage="start",
            )
        actor, job = self._asked.pop(done[0])
        try:
            found = self._ray.get(done[0])
        except self._ray.exceptions.RayTaskError as error:
            self._ray.kill(actor)
            raise _failed(error.cause, job) from error
        except self._ray.exceptions.RayError as error:
            self._lose(actor, job, error)
            return []
        self._idle.append(actor)
        self._hand_out()
        return [] if job is None else [(job.number, _answers(found, self._recycled))]

    def _lose(self, actor: Any, job: _Job | None, error: Exception) -> None:
        self._ray.kill(actor)
        number = None if job is None else job.number
        self._losses[number] += 1
        most = self._workers * LOSSES if job is None else LOSSES
        if self._losses[number] > most:
            raise _lost(most, job, error) from error
        if job is not None:
            self._todo.appendleft(job)
        self._start()
        self._hand_out()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in [*self._idle, *(actor for actor, _ in self._asked.values())]:
            self._ray.kill(actor)
        self._stored = self._broadcast = None
        self._idle, self._asked = [], {}
        self._todo.clear()
        self._open.close()


def gpu_share(workers: int, gpus: int) -> float:
    """Return which part of a GPU each actor asks for, so that all find a place and none stands on two.

    Raises:
        RunError: if there is no GPU.

    Example:
        >>> gpu_share(workers=3, gpus=2), gpu_share(workers=2, gpus=4)
        (0.5, 1.0)
    """
    if not gpus:
        raise RunError(
            "engine.device is 'cuda', but Ray knows of no GPU. Add a node that has one, or write "
            "engine.device: cpu.",
            stage="start",
        )
    return floor(10_000 / ceil(workers / gpus)) / 10_000  # Ray counts in ten-thousandths


def _knock(address: str) -> None:
    """Raise at once what Ray would find out in two minutes."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


@contextmanager
def _own_sigterm_handler() -> Iterator[None]:
    """Keep this process's handler of SIGTERM, which may save; where it has none, Ray's ends its processes."""
    former = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(former) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, former)


class _Worker:
    """What an actor is made of."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._round = 0

    def load(self, runner: Packed) -> None:
        """Make ready for the run."""
        self._runner: ClientRunner = unpack(runner)

    def work(self, broadcast: Packed, number: int, stack: bytes) -> Message:
        """Train a stack; the global tensors are unpacked once in each round of the executor."""
        if number != self._round:
            self._round, self._broadcast = number, unpack(broadcast)
        try:
            return pickle.PickleBuffer(encode_answers(self._runner(self._broadcast, pickle.loads(stack))))
        except RunError as error:
            return encode_failure(error)


def _answers(message: Message, memory: Recycled) -> Sequence[Answer]:
    if isinstance(message, bytes):
        raise decode_failure(message)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable")  # it is only read
        return decode_answers(memoryview(message), memory)


def _failed(cause: Exception, job: _Job | None) -> RunError:
    found = f"{type(cause).__name__}: {cause}"
    if job is not None:
        return RunError(found, **_place(job))
    return RunError(
        f"a worker cannot load the data, the model's slices and the objective ({found}), but it needs them. "
        "Install the same packages, and modules of your own, on every node.",
        stage="start",
    )


def _lost(most: int, job: _Job | None, error: Exception) -> RunError:
    why = " ".join(str(error).strip().splitlines()[-1:])
    reason = (
        f"workers were lost {most + 1} times in a round ({why}), but at most {most} times may be chance. "
        "Free memory, which they probably ran out of, or read the logs of Ray."
    )
    return RunError(reason, **({"stage": "start"} if job is None else _place(job)))


def _place(job: _Job) -> dict[str, Any]:
    first = job.stack[0]
    return {"client": first.client_id, "round_index": first.round_index, "stage": "training"}
