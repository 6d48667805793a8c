"""Trains the cohort in worker processes, one thread each; data and global tensors in shared memory."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.heap import Arena
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch.multiprocessing as mp
from numpy.typing import NDArray

from widthwise.core.errors import RunError
from widthwise.core.records import Answer
from widthwise.core.recycled import Block, Recycled, fresh, lent
from widthwise.engine.codec import decode_answers, encode_answers
from widthwise.engine.executors.handout import WINDOW, decode_failure, encode_failure, in_order
from widthwise.engine.processes import SCRIPT, script_hidden
from widthwise.engine.round import Assignment, Broadcast
from widthwise.engine.worker import STACK_BYTES, ClientRunner, Stack

_IN_BLOCK, _SENT, _FAILED = b"=", b"+", b"-"

BLOCKS = 3
"""Of shared memory, for each worker: it fills one while the reports in the others wait to be folded."""

SPARE_BYTES = 2**20
"""Of a block, for what stands beside the tensors. What does not fit travels through the pipe."""


class _Worker:
    """A worker process and the memory that it writes its reports into."""

    def __init__(self, process: Any, pipe: Connection, blocks: NDArray[np.uint8]) -> None:
        self.process, self.pipe, self._blocks = process, pipe, blocks
        self._free = list(range(len(blocks)))

    def give(self, round_index: int, stack: Stack) -> None:
        """Send a stack, and the number of the block for its reports."""
        self._filled = self._free.pop()
        self.pipe.send_bytes(pickle.dumps((round_index, self._filled, stack), protocol=5))

    def answers(self, memory: Recycled) -> Sequence[Answer]:
        """Receive the reports. They stay in their block, or are copied where it is the last one."""
        answer = self.pipe.recv_bytes()
        kind, content = answer[:1], answer[1:]
        number = self._filled
        if kind == _IN_BLOCK and self._free:
            block = lent(self._blocks[number, : int(content)], partial(self._free.append, number))
            return decode_answers(block.data, None)
        self._free.append(number)
        if kind == _IN_BLOCK:
            return decode_answers(self._blocks[number, : int(content)].data, memory)
        if kind == _SENT:
            return decode_answers(bytearray(content), memory)
        raise decode_failure(content)


class ProcessExecutor:
    """One process per worker; each takes the next client as soon as it is free.

    The training set and the global tensors of a round lie in shared memory, and so do some blocks for each
    worker, into which it writes its reports (``engine.codec``) and where they are folded. Who trains whom has
    no effect on the result.

    On CUDA devices, which workers take in turn, each worker has data and modules of its own and fetches the
    global tensors once a round; several on one device hide from it the time in which Python makes steps.

    Args:
        runner: Copied into every worker once; its data are moved to shared memory.
        workers: Number of processes.
        address: Ignored.
    """

    def __init__(self, runner: ClientRunner, workers: int, address: str | None = None) -> None:
        self._runner, self._count = runner, workers
        self._shared: Broadcast | None = None
        self._round = 0  # of this executor: tells workers when the global tensors are new
        self._workers: dict[Connection, _Worker] = {}
        self._recycled = Recycled()
        self._idle: list[_Worker] = []
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
        context.set_forkserver_preload([f"{__package__}.preloaded"])
        own_parts = (self._runner.dataset, self._runner.objective)
        reported = 1 + len(self._runner.objective.client_state)
        model = sum(value.nbytes for value in broadcast.params.values())
        size = _pages(SPARE_BYTES + max(reported * model, STACK_BYTES))
        with script_hidden(unless=any(type(part).__module__ in SCRIPT for part in own_parts)):
            for worker in range(self._count):
                ours, theirs = context.Pipe()
                arena = Arena(BLOCKS * size)  # its pages are taken as they are used
                process = context.Process(
                    target=_work, args=(theirs, self._runner.at(worker), self._shared, arena), daemon=True
                )
                process.start()
                theirs.close()
                self._workers[ours] = _Worker(process, ours, _blocks(arena))

    def run(self, broadcast: Broadcast, assignments: Iterable[Assignment]) -> Iterator[Answer]:
        """Return the reports in the order of the assignments.

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
        self._idle, self._busy = list(self._workers.values()), {}
        return in_order(self, self._runner.stacks(assignments), WINDOW * self._count)

    @property
    def free(self) -> bool:
        """Whether a worker has nothing to do."""
        return bool(self._idle)

    def give(self, number: int, stack: Stack) -> None:
        """Send a stack to an idle worker."""
        worker = self._idle.pop()
        try:
            worker.give(self._round, stack)
        except BrokenPipeError:
            raise self._died(worker, stack[0]) from None
        self._busy[worker.pipe] = number, stack

    def trained(self) -> Iterator[tuple[int, Sequence[Answer]]]:
        """Wait until stacks are done, and yield their numbers and reports."""
        for pipe in wait(list(self._busy)):
            assert isinstance(pipe, Connection)
            worker = self._workers[pipe]
            number, stack = self._busy.pop(pipe)
            try:
                answers = worker.answers(self._recycled)
            except (EOFError, ConnectionResetError):
                raise self._died(worker, stack[0]) from None
            self._idle.append(worker)
            yield number, answers

    @staticmethod
    def _died(worker: _Worker, assignment: Assignment) -> RunError:
        process = worker.process
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
        for pipe in self._workers:
            pipe.close()
        for worker in self._workers.values():
            process = worker.process
            if error is not None:
                process.terminate()
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
                process.join()
        self._workers, self._idle, self._shared = {}, [], None


def _groups(broadcast: Broadcast) -> list[dict[str, Any]]:
    return [broadcast.params, broadcast.buffers, *broadcast.server.values()]


def _pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _blocks(arena: Arena) -> NDArray[np.uint8]:
    """Return the blocks [BLOCKS, size] of a worker's memory."""
    return np.frombuffer(arena.buffer, np.uint8).reshape(BLOCKS, -1)


def _work(pipe: Connection, runner: ClientRunner, broadcast: Broadcast, arena: Arena) -> None:
    # The parent alone answers Ctrl-C; a worker ends when its pipe closes, also if the parent is killed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _take_turns()
    blocks, current = _blocks(arena), 0
    while True:
        try:
            number, place, stack = pickle.loads(pipe.recv_bytes())
        except (EOFError, ConnectionResetError):
            return
        if number != current:  # what lies in the shared memory is new, and so is the object
            current, broadcast = number, replace(broadcast)
        block = blocks[place]
        try:
            answers = runner(broadcast, stack, partial(_within, block))
            message = encode_answers(answers, into=block.data)
            answer = _SENT + message if isinstance(message, bytearray) else _IN_BLOCK + b"%d" % len(message)
        except RunError as error:
            answer = _FAILED + encode_failure(error)
        try:
            pipe.send_bytes(answer)
        except (BrokenPipeError, ConnectionResetError):
            return


def _take_turns() -> None:
    """Let the process that hands out clients go on when it has woken this one: others wait for it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _within(block: Block, size: int) -> Block:
    """Return the start of a block, or memory of its own for what is larger."""
    return block[:size] if size <= len(block) else fresh(size)
