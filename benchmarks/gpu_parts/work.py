"""The work: how large everything is, data, federations, and a clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widthwise.core.seeds import SeedTree
from widthwise.engine import EngineConfig, Federation
from widthwise.methods import build_method
from widthwise.slicing import trace
from widthwise.tasks import ArraySet, CapacityConfig, ListedPartition, Signature, Task, resolve_model
from widthwise.training import TrainingConfig

TIERS = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Scale:
    """How large everything is.

    Attributes:
        equal: Clients, and samples of each, in rounds that are compared.
        matrix: Rows of the matrices of a product.
        copy: Bytes of a copy.
        samples: Of a client whose training is timed.
        images: Of the protocol, over 20 clients.
        model: Factor on the channels of the paper's network.
        epochs: Of the protocol.
        rounds: Of the protocol that are timed.
        seconds: For each figure.
        stacks: Clients that are trained together.
        workers: Processes on the device.
    """

    equal: tuple[int, int] = (12, 40)
    matrix: int = 8192
    copy: int = 2**31
    samples: int = 2500
    images: int = 50_000
    model: float = 1.0
    epochs: int = 5
    rounds: int = 4
    seconds: float = 1.5
    stacks: tuple[int, ...] = (1, 10, 25, 100, 400)
    workers: tuple[int, ...] = (1, 2, 4, 8)


TINY = Scale((4, 12), 64, 2**16, 40, 400, 0.125, 1, 1, 0.0, (1, 2), (1,))


@dataclass(frozen=True)
class Bench:
    """What every part needs."""

    device: torch.device
    scale: Scale

    def wait(self) -> None:
        """Wait until the device has nothing to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def time(self, way: Callable[[], object]) -> float:
        """Return the median seconds of repeated calls after two for warming up, device included."""
        taken: list[float] = []
        for _ in range(2):
            way()
        while not taken or sum(taken) < self.scale.seconds:
            self.wait()
            start = time.perf_counter()
            way()
            self.wait()
            taken.append(time.perf_counter() - start)
        return statistics.median(taken)


def images(count: int, shape: tuple[int, ...]) -> ArraySet:
    """Return images of random bytes with a pattern for each of 10 classes."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 10, (count,), generator=generator)
    patterns = torch.randint(0, 256, (10, *shape), dtype=torch.uint8, generator=generator)
    noise = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)
    values = (patterns[targets].float() * 0.3 + noise.float() * 0.7).to(torch.uint8)
    moments = (127.5,) * shape[0], (64.0,) * shape[0]
    return ArraySet("patterns", Signature("image", shape, 10), tuple("0123456789"), values, targets, *moments)


def skewed(labels: Tensor, clients: int, alpha: float = 0.3) -> ListedPartition:
    """Return the paper's label skew: each class divided by shares from a Dirichlet distribution."""
    rng = np.random.default_rng(0)
    owner = torch.from_numpy(rng.integers(clients, size=len(labels)))
    for label in range(10):
        place = (labels == label).nonzero().flatten()
        owner[place] = torch.from_numpy(rng.choice(clients, len(place), p=rng.dirichlet([alpha] * clients)))
    owner[:clients] = torch.arange(clients)  # nobody is empty
    order = owner.argsort(stable=True)
    sizes = torch.bincount(owner, minlength=clients)
    return ListedPartition(torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)]), order)


def federation(
    data: ArraySet,
    partition: ListedPartition,
    model: str,
    method: dict[str, Any],
    training: TrainingConfig,
    engine: EngineConfig,
    **options: Any,
) -> Federation:
    """Return a federation of these parts with the paper's tiers."""
    capacity = CapacityConfig(tiers=TIERS, shares=(0.25,) * 4)
    spec, built = resolve_model(model, data.signature, options), build_method(method)
    task = Task(
        name="patterns",
        train=data,
        test=replace(data, values=data.values[:5000], targets=data.targets[:5000]),
        partition=partition,
        capacities=capacity.draw(len(partition), SeedTree(0)),
        tiers=capacity.levels(),
        model=spec,
    )
    return Federation(
        task=task,
        space=trace(spec.build(0), spec.example_inputs(), check=False),
        method=replace(built, objective=built.objective.for_tiers(task.tiers)),
        training=training,
        engine=engine,
        seed=0,
        config={"method": built.to_config(), "seed": 0},
        config_hash="benchmark",
        label="benchmark",
    )
