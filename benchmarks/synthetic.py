"""Synthetic work for the engine: random samples, who holds how many, and runs that are watched."""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, TypeVar

import torch

from widthwise.core.records import RoundRecord
from widthwise.core.seeds import SeedTree
from widthwise.engine import EXECUTORS, EngineConfig, Federation, run_federation
from widthwise.engine.disk import Disk
from widthwise.engine.round import Broadcast, RoundPlan, assignments
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.methods import build_method
from widthwise.slicing import trace
from widthwise.tasks import (
    ArraySet,
    CapacityConfig,
    Dataset,
    ListedPartition,
    Partition,
    PooledPartition,
    Signature,
    Task,
    TextSet,
    resolve_model,
)
from widthwise.training import TrainingConfig

from .memory import descendants, peak_bytes

IMAGES = Signature("image", (3, 32, 32), 10)
DIGITS = Signature("image", (1, 8, 8), 10)
TEXT = Signature("text", (80,), 95)

WHOLE = CapacityConfig(tiers=(1.0,), shares=(1.0,))
NEVER = 10**6
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Work:
    """A model, who holds how many random samples, and how they train.

    Attributes:
        name: What tables call it.
        model: Name of a registered model.
        signature: The data.
        clients: Number of clients.
        cohort: Clients of one round.
        samples: Samples of each client.
        batch: Samples of one step.
        rounds: Rounds of a run. The first starts workers, the last evaluates and saves: neither is timed.
        options: Of the model.
        pool: Distinct samples, where clients share them; None: each has its own.
        capacity: Widths that clients can train.
        method: Configuration of the method.
        momentum: Of SGD.
        engine: Options of the engine.
    """

    name: str
    model: str
    signature: Signature
    clients: int
    cohort: int
    samples: int
    batch: int
    rounds: int
    options: Mapping[str, Any] = field(default_factory=dict)
    pool: int | None = None
    capacity: CapacityConfig = WHOLE
    method: Mapping[str, Any] = field(default_factory=lambda: {"name": "fedavg"})
    momentum: float = 0.9
    engine: Mapping[str, Any] = field(default_factory=dict)

    def data(self) -> Dataset:
        """Return the training samples of all clients."""
        return random_samples(self.signature, self.pool or self.clients * self.samples)

    def federation(self, data: Dataset | None = None, **engine: Any) -> Federation:
        """Return what ``run_federation`` takes; options given here go before those of the work."""
        model = resolve_model(self.model, self.signature, self.options)
        task = Task(
            name="random",
            train=self.data() if data is None else data,
            test=random_samples(self.signature, 100),
            partition=self._partition(),
            capacities=self.capacity.draw(self.clients, SeedTree(0)),
            tiers=self.capacity.levels(),
            model=model,
        )
        return Federation(
            task=task,
            space=trace(model.build(0), model.example_inputs(), **task.tracing),
            method=build_method(self.method),
            training=TrainingConfig(
                rounds=self.rounds,
                cohort=self.cohort,
                local_epochs=1,
                batch_size=self.batch,
                momentum=self.momentum,
            ),
            engine=EngineConfig(**{"eval_every": NEVER, "checkpoint_every": NEVER, **self.engine, **engine}),
            seed=0,
            config={"method": dict(self.method), "seed": 0},
            config_hash="benchmark",
            label=self.name,
        )

    def _partition(self) -> Partition:
        if self.pool is not None:
            order = torch.randperm(self.pool, generator=torch.Generator().manual_seed(0))
            return PooledPartition(order, self.samples, self.clients)
        total = self.clients * self.samples
        return ListedPartition(torch.arange(0, total + 1, self.samples), torch.arange(total))


def runner_of(fed: Federation) -> ClientRunner:
    """Return what trains a federation's clients on the CPU."""
    return ClientRunner(fed.task.train, fed.task.partition, fed.space, fed.method.objective, fed.engine.stack)


def trains_here(fed: Federation) -> Callable[[ServerState, RoundPlan], None]:
    """Return what trains the clients of a plan by the serial executor, and lets their updates go."""
    executor = EXECUTORS["serial"].value(runner_of(fed), 1)

    def train(state: ServerState, plan: RoundPlan) -> None:
        handed_out = assignments(fed, state, plan, Disk(Path("nowhere")))
        deque(executor.run(Broadcast.of(state), handed_out), maxlen=0)

    return train


def random_samples(signature: Signature, count: int) -> Dataset:
    """Return so many samples of noise."""
    generator = torch.Generator().manual_seed(0)
    names = tuple(map(str, range(signature.num_classes)))
    if signature.kind == "text":
        stream = (count + signature.shape[0],)
        tokens = torch.randint(0, signature.num_classes, stream, dtype=torch.uint8, generator=generator)
        return TextSet("random", signature, names, tokens, torch.arange(count))
    values = torch.randint(0, 256, (count, *signature.shape), dtype=torch.uint8, generator=generator)
    targets = torch.randint(0, signature.num_classes, (count,), generator=generator)
    channels = signature.shape[0]
    return ArraySet("random", signature, names, values, targets, (127.5,) * channels, (64.0,) * channels)


class Watch:
    """A sink that notes when rounds end, and the most memory of a worker.

    Attributes:
        ends: Wall clock and CPU seconds of this process at the end of each round.
        worker_bytes: Peak resident memory of the largest process below this one; 0 if there is none.
    """

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []
        self.worker_bytes = 0

    def on_start(self, federation: Federation, start_round: int) -> None:
        """Take notice of when the last round will be."""
        self._last = federation.training.rounds - 1

    def on_round(self, record: RoundRecord) -> None:
        """Note the time; before workers leave, also how large they have become."""
        self.ends.append((time.perf_counter(), time.process_time()))
        if record.round == self._last:
            _, *below = descendants(os.getpid())
            self.worker_bytes = max(map(peak_bytes, below), default=0)

    def on_end(self, result: dict[str, Any]) -> None:
        """Everything is noted."""

    @property
    def seconds(self) -> list[float]:
        """Wall clock seconds of each round but the first and the last."""
        return [end[0] - start[0] for start, end in pairwise(self.ends[:-1])]

    @property
    def cpu_seconds(self) -> list[float]:
        """CPU seconds of this process in each round but the first and the last."""
        return [end[1] - start[1] for start, end in pairwise(self.ends[:-1])]


def watched(fed: Federation) -> Watch:
    """Run a federation into a folder that is removed afterwards."""
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        run_federation(fed, Path(folder) / "run", sinks=[watch])
    return watch


def in_fresh_processes(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return what a function returns for each item, all at once, each in a new process of one thread."""
    context = get_context("spawn")
    gate = context.Barrier(len(items))  # nobody starts before all can
    with ProcessPoolExecutor(len(items), context, _begin, (gate,)) as pool:
        return list(pool.map(function, items))


def _begin(gate: Barrier) -> None:
    torch.set_num_threads(1)
    gate.wait()
