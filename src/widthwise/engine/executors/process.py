"""Trains the cohort in worker processes, one thread each; data and global tensors in shared memory."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

import torch
import torch.multiprocessing as mp
from torch import Tensor

from widthwise.core.errors import RunError
from widthwise.core.records import Answer
from widthwise.core.recycled import Recycled
from widthwise.engine.codec import decode_answers, encode_answers
from widthwise.engine.executors.handout import WINDOW, decode_failure, encode_failure, in_order
from widthwise.engine.processes import SCRIPT, script_hidden
from widthwise.engine.round import Assignment, Broadcast
from widthwise.engine.worker import STACK_BYTES, ClientRunner, Stack

_IN_SLAB, _SENT, _FAILED = b"=", b"+", b"-"

SPARE_BYTES = 2**20
"""Of a slab, for what stands beside the tensors. What does not fit travels through the pipe."""


class ProcessExecutor:
    """One process per worker; each takes the next client as soon as it is free.

    The training set and the global tensors of a round lie in shared memory, and so does a slab for each
    worker, into which it writes its reports (``engine.codec``); the parent has copied them when it hands out
    the next stack. Who trains whom has no effect on the result.

    On CUDA devices, which workers take in turn, each worker has data and modules of its own and fetches the
    global tensors once a round; several on one device hide from it the time in which Python makes steps.

    Args:
        runner: Copied into every worker once; its data are moved to shared memory.
        workers: Number of processes.
        address: Ignored.
    """

    def __init__(self, runner: ClientRunner, workers: int, address: str | None = None) -> None:
        self._runner, self._workers = runner, workers
        self._shared: Broadcast | None = None
        self._round = 0  # of this executor: tells workers when the global tensors are new
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._slabs: list[Tensor] = []
        self._recycled = Recycled()
        self._idle: list[Connection] = []
        self._busy: dict[Connection, tuple[int, Stack]] = {}

    def __enter__(self) -> Self:
        return self

    def _start(self, broadcast: Broadcast) -> None:
        self._runner.dataset.share_()
        self._runner.partition.share_()
        self._shared = broadcast
        for group in _groups(broadcast):
            for name, value in group.items():
                group[name] = value.clone().share_memory_()
        # A server process imports everything once and forks the workers: they start at once, for the next
        # run of this process too, and inherit no threads and no autograd state from it.
        context = mp.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        own_parts = (self._runner.dataset, self._runner.objective)
        reported = 1 + len(self._runner.objective.client_state)
        model = sum(value.nbytes for value in broadcast.params.values())
        size = SPARE_BYTES + 2 * max(reported * model, STACK_BYTES)
        with script_hidden(unless=any(type(part).__module__ in SCRIPT for part in own_parts)):
            for worker in range(self._workers):
                ours, theirs = context.Pipe()
                slab = torch.empty(size, dtype=torch.uint8)  # its pages are taken as they are used
                slab.share_memory_()  # type: ignore[no-untyped-call]
                process = context.Process(
                    target=_work, args=(theirs, self._runner.at(worker), self._shared, slab), daemon=True
                )
                process.start()
                theirs.close()
                self._processes.append(process)
                self._pipes.append(ours)
                self._slabs.append(slab)

    def run(self, broadcast: Broadcast, assignments: Iterable[Assignment]) -> Iterator[Answer]:
        """Yield the reports in the order of the assignments.

        Raises:
            RunError: if a client fails or a worker process dies.
        """
        if self._shared is None:
            own = Broadcast(
                dict(broadcast.params),
                dict(broadcast.buffers),
                {k: dict(v) for k, v in broadcast.server.items()},
            )
            self._start(own)
        else:
            for shared, fresh in zip(_groups(self._shared), _groups(broadcast), strict=True):
                for name, value in fresh.items():
                    shared[name].copy_(value)
        self._round += 1
        self._idle, self._busy = list(self._pipes), {}
        yield from in_order(self, self._runner.stacks(assignments), WINDOW * self._workers)

    @property
    def free(self) -> bool:
        """Whether a worker has nothing to do."""
        return bool(self._idle)

    def give(self, number: int, stack: Stack) -> None:
        """Send a stack to an idle worker."""
        pipe = self._idle.pop()
        try:
            pipe.send_bytes(pickle.dumps((self._round, stack), protocol=5))
        except BrokenPipeError:
            raise self._died(pipe, stack[0]) from None
        self._busy[pipe] = number, stack

    def trained(self) -> Iterator[tuple[int, Sequence[Answer]]]:
        """Wait until stacks are done, and yield their numbers and reports."""
        for pipe in wait(list(self._busy)):
            assert isinstance(pipe, Connection)
            number, stack = self._busy.pop(pipe)
            yield number, self._receive(pipe, stack)
            self._idle.append(pipe)

    def _receive(self, pipe: Connection, stack: Stack) -> Sequence[Answer]:
        try:
            answer = pipe.recv_bytes()
        except (EOFError, ConnectionResetError):
            raise self._died(pipe, stack[0]) from None
        if answer[:1] == _IN_SLAB:
            return decode_answers(_memory(self._slabs[self._pipes.index(pipe)]), self._recycled)
        if answer[:1] == _SENT:
            return decode_answers(bytearray(answer[1:]), self._recycled)
        raise decode_failure(answer[1:])

    def _died(self, pipe: Connection, assignment: Assignment) -> RunError:
        process = self._processes[self._pipes.index(pipe)]
        process.join(timeout=5)
        remedy = (
            "Lower engine.workers or free memory, which it probably ran out of."
            if process.exitcode == -signal.SIGKILL
            else "Its own message is above."
        )
        return RunError(
            f"a worker process died (exit code {process.exitcode}), but it must live as long as the run. "
            f"{remedy}",
            client=assignment.client_id,
            round_index=assignment.round_index,
            stage="training",
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            if error is not None:
                process.terminate()
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
                process.join()
        self._pipes, self._processes, self._slabs, self._shared = [], [], [], None


def _groups(broadcast: Broadcast) -> list[dict[str, Any]]:
    return [broadcast.params, broadcast.buffers, *broadcast.server.values()]


def _memory(slab: Tensor) -> memoryview:
    return slab.numpy().data


def _work(pipe: Connection, runner: ClientRunner, broadcast: Broadcast, slab: Tensor) -> None:
    # The parent alone answers Ctrl-C; a worker ends when its pipe closes, also if the parent is killed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    current = 0
    while True:
        try:
            number, stack = pickle.loads(pipe.recv_bytes())
        except (EOFError, ConnectionResetError):
            return
        if number != current:  # what lies in the shared memory is new, and so is the object
            current, broadcast = number, replace(broadcast)
        try:
            message = encode_answers(runner(broadcast, stack), into=_memory(slab))
            answer = _SENT + message if isinstance(message, bytearray) else _IN_SLAB
        except RunError as error:
            answer = _FAILED + encode_failure(error)
        try:
            pipe.send_bytes(answer)
        except (BrokenPipeError, ConnectionResetError):
            return
