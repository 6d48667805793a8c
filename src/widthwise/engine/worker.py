"""What a worker keeps resident while a run lasts: data, width space and a few dense modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self, TypeVar

import torch

from widthwise.compression import Compression, compress
from widthwise.core.allocator import keep_freed_memory
from widthwise.core.device import CPU, upload, working_on
from widthwise.core.errors import RunError, SliceError
from widthwise.core.params import sum_dtype
from widthwise.core.records import (
    Answer,
    ClientReport,
    ClientTask,
    CompressedReport,
    SliceSpec,
    SummedReports,
)
from widthwise.core.recycled import Block, Recycled, fresh
from widthwise.core.threads import one_thread
from widthwise.engine.round import Assignment, Broadcast, dispatch
from widthwise.slicing import WidthSpace
from widthwise.tasks import Dataset, Partition
from widthwise.training import ModuleCache, Objective, batch_sizes, train, train_stack

T = TypeVar("T")

Stack = tuple[Assignment, ...]
"""Assignments that go to one worker together."""

STACK_BYTES = 4 * 2**20
"""Parameters of a stack, at most: beyond a core's cache nothing is gained by more clients."""

STACK_BYTES_CUDA = 256 * 2**20
"""The same on a CUDA device, which wants larger products; activations take a multiple of it."""

HANDOVER = 130, 20_000_000
"""What it costs that the server folds one update more, in multiply-accumulates that a core makes meanwhile:
for each parameter, and for each client (2 ns and .3 ms at 70 billion a second)."""

STEP = 40_000_000
"""The same of a step of training that has nothing to multiply."""

HANDOVERS = 8
"""Clients are summed in a worker until their training costs as much as so many hand-overs: then these cost
a ninth of the time at most, and no worker is left with more than that when the others are done."""


@contextmanager
def _naming(assignment: Assignment) -> Iterator[None]:
    """Turn whatever goes wrong inside into an error that names client, round and stage."""
    try:
        yield
    except RunError:
        raise
    except Exception as error:
        raise RunError(
            f"{type(error).__name__}: {error}",
            client=assignment.client_id,
            round_index=assignment.round_index,
            stage="training",
        ) from error


@dataclass
class ClientRunner:
    """Trains clients, those of one shape together where that is possible.

    Attributes:
        dataset: The training samples of all clients.
        partition: Whose samples are whose.
        space: Width space of the model.
        objective: The local objective.
        stack: How many clients go to a worker together, at most.
        devices: Where workers train; this one on the first.
        compression: How reports are compressed where they were made, if they are.
    """

    dataset: Dataset
    partition: Partition
    space: WidthSpace
    objective: Objective
    stack: int = 1
    devices: tuple[torch.device, ...] = (CPU,)
    compression: Compression | None = None
    module_for: ModuleCache = field(init=False)
    _memory: Recycled = field(init=False, default_factory=Recycled)
    _sent: tuple[Broadcast, Broadcast] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.module_for = ModuleCache(self.space, self.device)

    @property
    def device(self) -> torch.device:
        """Where this worker trains."""
        return self.devices[0]

    def at(self, worker: int) -> Self:
        """Return the runner of a worker: they take the devices in turn."""
        return replace(self, devices=(self.devices[worker % len(self.devices)],))

    @cached_property
    def _resident(self) -> Dataset:
        return self.dataset.to(self.device)

    def stacks(self, assignments: Iterable[Assignment]) -> Iterator[Stack]:
        """Yield consecutive assignments that a worker takes together, in their order.

        They are trained at once where that is possible; elsewhere one after the other, where only the sum of
        their updates is asked for and their training costs less than to hand them over one by one. What is in
        a stack follows from the assignments alone, not from who trains it: reports do not depend on the
        executor.
        """
        waiting: list[Assignment] = []
        shape: object = None
        most = 1
        for assignment in assignments:
            own = self._shape(assignment)
            if waiting and own != shape:
                yield tuple(waiting)
                waiting = []
            if not waiting:
                shape, most = own, self._most(assignment)
            waiting.append(assignment)
            if own is None or len(waiting) == most:
                yield tuple(waiting)
                waiting = []
        if waiting:
            yield tuple(waiting)

    def __call__(
        self, broadcast: Broadcast, stack: Stack, memory: Callable[[int], Block] = fresh
    ) -> Sequence[Answer]:
        """Train the clients of a stack on one thread and return what they send.

        These are their reports, compressed where the run compresses them, or summed where they may be.

        Args:
            broadcast: The global tensors, on the CPU. They go to the device once for each such object.
            stack: The clients.
            memory: Gives the memory of what is sent, once, where that is one report or one sum.

        Raises:
            RunError: whatever went wrong, with client, round and stage; the original error is its cause.
        """
        keep_freed_memory()
        with one_thread(), working_on(self.device), _naming(stack[0]):
            tasks = self._dispatched(broadcast, stack)
            if len(stack) == 1:
                own = memory if self.compression is None else self._memory
                return self._answers([self._alone(tasks[0], stack[0].spec, own)], stack)
            return (
                self._stacked(tasks, stack) if self._at_once(stack[0]) else [self._sum(tasks, stack, memory)]
            )

    def _stacked(self, tasks: Sequence[ClientTask], stack: Stack) -> Sequence[Answer]:
        weights = [assignment.weight for assignment in stack if assignment.weight is not None]
        one_slice = all(assignment.spec.key() == stack[0].spec.key() for assignment in stack)
        trained = train_stack(
            tasks,
            space=self.space,
            module_for=self.module_for,
            dataset=self._resident,
            indices=[self.partition.client(assignment.client_id) for assignment in stack],
            weights=weights if one_slice and len(weights) == len(stack) else None,
        )
        return [trained] if isinstance(trained, SummedReports) else self._answers(trained, stack)

    def _sum(
        self, tasks: Sequence[ClientTask], stack: Stack, memory: Callable[[int], Block]
    ) -> SummedReports:
        spec, reports, total = stack[0].spec, list[ClientReport](), dict[str, torch.Tensor]()
        weights = [assignment.weight for assignment in stack if assignment.weight is not None]
        for task, assignment, weight in zip(tasks, stack, weights, strict=True):
            with _naming(assignment):
                report = self._alone(task, assignment.spec, self._memory if reports else memory)
            for name, value in report.delta.items():
                if name in total:
                    total[name].add_(value, alpha=weight)
                else:  # the first update becomes the sum
                    total[name] = value.to(sum_dtype(value)).mul_(weight)
            reports.append(replace(report, delta={}))
        return SummedReports(
            spec=spec,
            total=total,
            weight=sum(weights),
            client_ids=tuple(report.client_id for report in reports),
            num_examples=tuple(report.num_examples for report in reports),
            losses=tuple(report.metrics["loss"] for report in reports),
        )

    def _answers(self, reports: Sequence[ClientReport], stack: Stack) -> Sequence[Answer]:
        if self.compression is None:
            return reports
        return [
            compress(report, self.compression, assignment.seed)
            for report, assignment in zip(reports, stack, strict=True)
        ]

    def train(self, task: ClientTask) -> ClientReport | CompressedReport:
        """Train one client on what a server on a network has sent it: the answer is that of a stack of one.

        Args:
            task: What the client was sent, its tensors on the CPU.

        Raises:
            DivergenceError: if a loss or the update is not finite.
        """
        keep_freed_memory()
        with one_thread(), working_on(self.device):
            tensors = (task.params, task.buffers, dict(task.state))
            (params, buffers, state), spec, context = self._uploaded(tensors, task)
            placed = replace(
                task, params=params, buffers=buffers, state=state, spec=spec, context_spec=context
            )
            report = self._alone(placed, task.spec, self._memory)
            return compress(report, self.compression, task.seed) if self.compression else report

    def _alone(self, task: ClientTask, spec: SliceSpec, memory: Callable[[int], Block]) -> ClientReport:
        report = train(
            task,
            space=self.space,
            module_for=self.module_for,
            dataset=self._resident,
            indices=self.partition.client(task.client_id),
            objective=self.objective,
            memory=memory,
        )
        return replace(report, spec=spec) if spec.mask else report  # with the mask of the host

    def _dispatched(self, broadcast: Broadcast, stack: Stack) -> list[ClientTask]:
        if self.device.type != "cpu":
            broadcast = self._on_device(broadcast)
            stack = (self._placed(stack[0]), *stack[1:])  # only a client alone has tensors of its own
        first, *others = stack
        task = dispatch(self.space, broadcast, first)
        # Clients of one slice share its tensors, which train_stack makes use of.
        return [task] + [
            replace(task, client_id=one.client_id, capacity=one.capacity, seed=one.seed)
            if one.spec is first.spec
            else dispatch(self.space, broadcast, one)
            for one in others
        ]

    def _on_device(self, broadcast: Broadcast) -> Broadcast:
        if self._sent is None or self._sent[0] is not broadcast:
            self._sent = None  # makes room
            self._sent = broadcast, broadcast.on(self.device)
        return self._sent[1]

    def _placed(self, assignment: Assignment) -> Assignment:
        """Return an assignment whose states and masks lie on the device."""
        states, spec, context = self._uploaded(dict(assignment.client_state), assignment)
        return replace(assignment, spec=spec, context_spec=context, client_state=states)

    def _uploaded(self, tensors: T, of: Assignment | ClientTask) -> tuple[T, SliceSpec, SliceSpec]:
        """Return tensors, and the two specs with their masks, on the device: all in one copy."""
        specs = of.spec, of.context_spec
        masks = [dict(spec.mask.kept) if spec.mask else None for spec in specs]
        tensors, masks = upload((tensors, masks), self.device)
        spec, context = (
            replace(spec, mask=replace(spec.mask, kept=kept)) if spec.mask and kept is not None else spec
            for spec, kept in zip(specs, masks, strict=True)
        )
        return tensors, spec, context

    def _shape(self, assignment: Assignment) -> object:
        """Return what clients must share to go to a worker together, or None for one that goes alone."""
        spec = assignment.spec
        if self.stack == 1 or spec.mask is not None:
            return None
        if self._at_once(assignment):
            return tuple(map(len, spec.kept.values())), self._steps(assignment)
        return None if assignment.weight is None else (spec.key(), assignment.context_spec.key())

    @staticmethod
    def _steps(assignment: Assignment) -> int:
        """Return the steps of one local epoch."""
        return len(batch_sizes(assignment.samples, assignment.config.batch_size))

    def _at_once(self, assignment: Assignment) -> bool:
        """Return whether a client can be trained in one product with others."""
        alone = self.dataset.augmented or assignment.context_spec is not assignment.spec
        return self.space.samplewise and self.objective.plain and not alone

    def _most(self, assignment: Assignment) -> int:
        """Return how many clients like this one, or with less to do, go together at most."""
        try:
            size = self.space.upload_bytes(assignment.spec)
        except SliceError:
            return 1  # who trains it names its client
        if self._at_once(assignment):
            most = (STACK_BYTES if self.device.type == "cpu" else STACK_BYTES_CUDA) // size
        else:
            per_parameter, per_client = HANDOVER
            handover = per_parameter * self.space.num_params(assignment.spec) + per_client
            # A backward pass costs two forward ones.
            epoch = 3 * self.space.macs(assignment.spec) * assignment.samples + STEP * self._steps(assignment)
            work = epoch * assignment.config.local_epochs
            most = HANDOVERS * handover // work
        return max(1, min(self.stack, most))
