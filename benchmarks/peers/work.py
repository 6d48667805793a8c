"""The work that every simulator is given: models, data, who holds it, who trains when, one plain local loop.

It runs in the environment of every peer and therefore imports torch and numpy alone. Images are bytes: each
class has a random pattern, and a sample is the mean of its class's pattern and noise, so that a few rounds
already lower the loss. All clients hold equally many samples, so that a round has as many whoever is drawn.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

SEED = 0
CLASSES = 10
WARMUP = 2  # rounds before the clock starts
MEAN, STD = 127.5, 64.0  # a batch is (bytes - MEAN) / STD

Params = Mapping[str, Tensor]


def paper_cnn(width: float) -> nn.Module:
    """Return widthwise's ``cnn`` (arXiv 2608.07157, Table 1, group norm) with a share of its channels."""
    layers: list[nn.Module] = []
    channels = 3
    for full in (64, 128, 256):
        hidden = math.ceil(width * full)
        for _ in range(2):
            layers += [
                nn.Conv2d(channels, hidden, 3, padding=1),
                nn.GroupNorm(hidden // 8, hidden),
                nn.ReLU(),
            ]
            channels = hidden
        layers.append(nn.MaxPool2d(2))
    hidden = math.ceil(width * 512)
    head = [nn.Flatten(), nn.Linear(channels * 4 * 4, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES)]
    return nn.Sequential(*layers, *head)


def pfl_cnn(width: float) -> nn.Module:
    """Return the network of pfl-research's CIFAR-10 benchmark (1.63 M parameters)."""
    one, two, hidden = (math.ceil(width * full) for full in (32, 64, 128))
    return nn.Sequential(
        nn.Conv2d(3, one, 3),
        nn.ReLU(),
        nn.Conv2d(one, two, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(two * 14 * 14, hidden),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(hidden, CLASSES),
    )


def small_mlp(width: float) -> nn.Module:
    """Return a perceptron of 64 inputs, 64 hidden units and 10 classes."""
    hidden = math.ceil(width * 64)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))


@dataclass(frozen=True)
class Setting:
    """One piece of work.

    Attributes:
        what: The setting in words.
        model: Width -> a dense module; width 1 is the global model.
        shape: Shape of one sample.
        clients: Number of clients.
        samples: Samples of each client.
        cohort: Clients of one round.
        batch_size: Samples of one step.
        lr: Learning rate of plain SGD, one local epoch.
        rounds: Timed rounds.
        widths: Tiers; client i trains width ``widths[i % len(widths)]``.
    """

    what: str
    model: Callable[[float], nn.Module]
    shape: tuple[int, ...]
    clients: int
    samples: int
    cohort: int
    batch_size: int
    lr: float
    rounds: int
    widths: tuple[float, ...] = (1.0,)

    @property
    def total_rounds(self) -> int:
        """All rounds of a run: warm-up, the timed ones, and one in which a peer may evaluate and save."""
        return WARMUP + self.rounds + 1

    def width(self, client: int) -> float:
        """Return the width that a client trains."""
        return self.widths[client % len(self.widths)]

    def indices(self, client: int) -> Tensor:
        """Return the positions of a client's samples."""
        return torch.arange(client * self.samples, (client + 1) * self.samples)

    def cohort_of(self, round_index: int) -> list[int]:
        """Return who trains in a round: the draw that widthwise makes for this seed."""
        digest = hashlib.sha256(f"{SEED}/ssampling/i{round_index}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "little") >> 1)
        return sorted(rng.choice(self.clients, size=self.cohort, replace=False).tolist())

    def data(self, limit: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the samples of all clients, uint8 [N, *shape], and their classes, int64 [N].

        With a limit, only so many of the first. Made piece by piece, since the peak of memory counts.
        """
        generator = torch.Generator().manual_seed(SEED)
        patterns = torch.randint(0, 256, (CLASSES, *self.shape), dtype=torch.uint8, generator=generator)
        targets = torch.empty(limit or self.clients * self.samples, dtype=torch.int64)
        values = torch.empty((len(targets), *self.shape), dtype=torch.uint8)
        for some_values, some_targets in zip(values.split(100), targets.split(100), strict=True):
            some_targets.random_(0, CLASSES, generator=generator)
            noise = some_values.random_(0, 256, generator=generator)
            noise.div_(2, rounding_mode="floor").add_(patterns[some_targets] // 2)
        return values, targets

    def initial(self) -> nn.Module:
        """Return the global model that every run starts from."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return self.model(1.0)


SETTINGS = {
    "A": Setting(
        what="HeteroFL slices (1, 1/2, 1/4, 1/8) of the paper's CNN, "
        "20 clients x 64 images, cohort 10, batch 32",
        model=paper_cnn,
        shape=(3, 32, 32),
        clients=20,
        samples=64,
        cohort=10,
        batch_size=32,
        lr=0.01,
        rounds=8,
        widths=(1.0, 0.5, 0.25, 0.125),
    ),
    "B": Setting(
        what="pfl's CIFAR-10 CNN, 1,000 clients x 50 images, cohort 50, batch 10",
        model=pfl_cnn,
        shape=(3, 32, 32),
        clients=1000,
        samples=50,
        cohort=50,
        batch_size=10,
        lr=0.05,
        rounds=6,
    ),
    "C": Setting(
        what="MLP 64-64-10, 500 clients x 20 samples, cohort 100, batch 10",
        model=small_mlp,
        shape=(1, 8, 8),
        clients=500,
        samples=20,
        cohort=100,
        batch_size=10,
        lr=0.1,
        rounds=40,
    ),
}


def normalised(values: Tensor) -> Tensor:
    """Return bytes as the float32 inputs that models take."""
    return values.float().sub_(MEAN).div_(STD)


def leading(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the view of a global tensor that a slice keeps: the leading block of its shape.

    Columns of a linear layer behind a flattened image are ordered by channel, so this holds for them too.
    """
    for axis, size in enumerate(shape):
        tensor = tensor.narrow(axis, 0, size)
    return tensor


def train(module: nn.Module, samples: tuple[Tensor, Tensor], indices: Tensor, job: Job) -> int:
    """Train one local epoch of plain SGD in random order and return the number of samples seen."""
    values, targets = samples
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=job.setting.lr, fused=True)
    seen = 0
    for batch in indices[torch.randperm(len(indices))].split(job.setting.batch_size):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=job.precision == "bf16"):
            loss = nn.functional.cross_entropy(module(normalised(values[batch])), targets[batch])
        loss.backward()
        optimizer.step()
        seen += len(batch)
    return seen


@dataclass(frozen=True)
class Job:
    """What one child process measures.

    Attributes:
        setting: The work.
        processes: Processes that train.
        threads: Threads of each.
        precision: ``fp32``, or ``bf16`` (autocast of the forward pass).
        checkout: The peer's source tree, where it is no package.
    """

    setting: Setting
    processes: int
    threads: int
    precision: str
    checkout: str = ""

    @classmethod
    def from_command_line(cls) -> Job:
        """Return the job that the runner wrote on this process's command line, and take its threads."""
        parser = argparse.ArgumentParser()
        parser.add_argument("job", type=json.loads)
        content = parser.parse_args().job
        setting = SETTINGS[content.pop("setting")]
        job = cls(setting=overhead(setting) if content.pop("overhead") else setting, **content)
        torch.set_num_threads(job.threads)
        return job


def overhead(setting: Setting) -> Setting:
    """Return the setting with one sample for each client: what is left is the cost of a client's turn."""
    return replace(setting, samples=1)


@dataclass
class Log:
    """What a peer notes while it runs: when each round ended, and the samples trained in it."""

    ends: list[float] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)

    def end_round(self) -> None:
        """Note that a round has ended now."""
        self.ends.append(time.perf_counter())

    def report(self, job: Job, final: Params, packages: Sequence[str] = ()) -> str:
        """Return the line that the runner reads.

        Args:
            job: What was run.
            final: The global parameters at the end.
            packages: The peer's packages whose versions are to be reported.
        """
        last = WARMUP + job.setting.rounds - 1
        initial = job.setting.initial()
        before = {name: value.detach().clone() for name, value in initial.named_parameters()}
        return json.dumps(
            {
                "seconds": self.ends[last] - self.ends[WARMUP - 1],
                "samples": sum(self.samples[WARMUP : last + 1]),
                "clients": job.setting.cohort * job.setting.rounds,
                "loss_before": loss_of(job.setting, before),
                "loss_after": loss_of(job.setting, final),
                "moved": max(float((final[name] - before[name]).abs().max()) for name in before),
                "versions": {
                    name: importlib.metadata.version(name) for name in ("torch", "numpy", *packages)
                },
            }
        )


@torch.no_grad()
def loss_of(setting: Setting, params: Params) -> float:
    """Return the mean loss of the global model over the first samples, in batches as small as in training."""
    model = setting.initial().eval()
    model.load_state_dict(dict(params))
    values, targets = setting.data(min(500, setting.clients * setting.samples))
    scores = torch.cat([model(normalised(some)) for some in values.split(setting.batch_size)])
    return float(nn.functional.cross_entropy(scores, targets))
