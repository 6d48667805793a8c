"""What does the framework cost? Our engine against a bare PyTorch loop that takes the same steps.

The bare loop has one resident module, gathers batches from a tensor of bytes, and averages in float64: what
one would write for a single experiment. Engine and loop run in turn, on one thread of one process; compared
are medians over rounds, in CPU seconds, which other work on the machine disturbs least.

    python benchmarks/overhead.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from widthwise.core.seeds import SeedTree
from widthwise.engine import EngineConfig, Federation, run_federation
from widthwise.engine.environment import environment
from widthwise.methods import build_method
from widthwise.slicing import trace
from widthwise.tasks import ArraySet, CapacityConfig, ListedPartition, Signature, Task, resolve_model
from widthwise.training import TrainingConfig


@dataclass(frozen=True)
class Setting:
    """A model, its clients and how they train.

    Attributes:
        shape: Shape of one image.
        samples: Samples of each client.
    """

    name: str
    model: str
    shape: tuple[int, ...]
    clients: int
    cohort: int
    samples: int
    batch: int
    rounds: int


SETTINGS = (
    Setting("paper's CNN", "cnn", (3, 32, 32), clients=4, cohort=4, samples=64, batch=32, rounds=4),
    Setting("small CNN", "cnn-small", (1, 8, 8), clients=40, cohort=40, samples=40, batch=10, rounds=10),
    Setting("MLP", "mlp", (1, 8, 8), clients=500, cohort=100, samples=20, batch=10, rounds=20),
)


def federation(setting: Setting, precision: str = "fp32") -> Federation:
    """Return the federation of a setting: full width, random images."""
    generator = torch.Generator().manual_seed(0)
    signature = Signature("image", setting.shape, 10)
    total = setting.clients * setting.samples

    def data(size: int) -> ArraySet:
        values = torch.randint(0, 256, (size, *setting.shape), dtype=torch.uint8, generator=generator)
        targets = torch.randint(0, 10, (size,), generator=generator)
        moments = (127.5,) * setting.shape[0], (64.0,) * setting.shape[0]
        return ArraySet("random", signature, tuple("0123456789"), values, targets, *moments)

    capacity = CapacityConfig(tiers=(1.0,), shares=(1.0,))
    model = resolve_model(setting.model, signature)
    task = Task(
        name="random",
        train=data(total),
        test=data(10),
        partition=ListedPartition(torch.arange(0, total + 1, setting.samples), torch.arange(total)),
        capacities=capacity.draw(setting.clients, SeedTree(0)),
        tiers=capacity.levels(),
        model=model,
    )
    return Federation(
        task=task,
        space=trace(model.build(0), model.example_inputs()),
        method=build_method({"name": "fedavg"}),
        training=TrainingConfig(
            rounds=setting.rounds, cohort=setting.cohort, local_epochs=1, batch_size=setting.batch
        ),
        engine=EngineConfig(executor="serial", eval_every=10**6, checkpoint_every=10**6, precision=precision),
        seed=0,
        config={"method": {"name": "fedavg"}, "seed": 0},
        config_hash="benchmark",
        label="fedavg",
    )


class Clock:
    """A sink that notes when rounds end: between two of them lies all that the engine does."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_start(self, federation: Federation, round_index: int) -> None:
        """Nothing has happened yet."""

    def on_round(self, record: object) -> None:
        """Note the time."""
        self.ends.append(time.process_time())

    def on_end(self, result: object) -> None:
        """Nothing follows."""


def engine_seconds(fed: Federation) -> list[float]:
    """Return the seconds from one end of a round to the next, without the last one, which evaluates."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        run_federation(fed, Path(folder) / "run", sinks=[clock])
    return [end - start for start, end in pairwise(clock.ends[:-1])]


def bare_seconds(fed: Federation) -> list[float]:
    """Return the seconds of each round of a loop without a framework."""
    config, precision = fed.training, fed.engine.precision
    train = fed.task.train
    assert isinstance(train, ArraySet)
    mean, std = (torch.tensor(m).view(1, -1, 1, 1) for m in (train.mean, train.std))
    model = fed.task.build_model(0)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    local = model.train().to(memory_format=torch.channels_last)
    params = dict(local.named_parameters())
    generator, ends = torch.Generator().manual_seed(0), [time.process_time()]
    for _ in range(config.rounds):
        total = {name: torch.zeros(p.shape, dtype=torch.float64) for name, p in weights.items()}
        seen = 0
        for client in torch.randperm(len(fed.task.capacities), generator=generator)[: config.cohort].tolist():
            own = fed.task.partition.client(client)
            with torch.no_grad():
                for name, p in params.items():
                    p.copy_(weights[name])
            optimizer = torch.optim.SGD(
                local.parameters(),
                lr=config.lr,
                momentum=config.momentum,
                weight_decay=config.weight_decay,
                fused=True,
            )
            for batch in own[torch.randperm(len(own), generator=generator)].split(config.batch_size):
                images = train.values[batch].float().sub_(mean).div_(std)
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
                    loss = cross_entropy(local(images), train.targets[batch])
                loss.backward()
                if config.clip_norm is not None:
                    torch.nn.utils.clip_grad_norm_(local.parameters(), config.clip_norm)
                optimizer.step()
            with torch.no_grad():
                for name, p in params.items():
                    total[name].add_(p - weights[name], alpha=len(own))
            seen += len(own)
        weights = {name: p + (total[name] / seen).to(p.dtype) for name, p in weights.items()}
        ends.append(time.process_time())
    return [end - start for start, end in pairwise(ends)][1:]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for setting in SETTINGS:
        fed = federation(setting)
        engine: list[float] = []
        bare: list[float] = []
        for _ in range(options.repeats):
            bare += bare_seconds(fed)
            engine += engine_seconds(fed)
        samples = setting.cohort * setting.samples
        row = {
            **asdict(setting),
            "engine_samples_per_second": samples / statistics.median(engine),
            "bare_samples_per_second": samples / statistics.median(bare),
        }
        row["share"] = row["engine_samples_per_second"] / row["bare_samples_per_second"]
        rows.append(row)
        print(f"{setting.name}: {row['share']:.2f} of the bare loop's samples per second", flush=True)
    if options.json:
        result = {"environment": environment(), "threads": 1, "rows": rows}
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
