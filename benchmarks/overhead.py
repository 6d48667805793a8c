"""What does the framework cost? Our engine against a bare PyTorch loop that takes the same steps.

The bare loop has one resident module, gathers batches from a tensor of bytes, and averages in float64: what
one would write for a single experiment. Engine and loop run in turn, on one thread of one process; compared
are medians over rounds, in CPU seconds, which other work on the machine disturbs least. The last work is a
model of one hidden unit and clients of one sample: what is left is what a client's turn costs.

    python -m benchmarks.overhead [--out FILE.json]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import torch
from torch.nn.functional import cross_entropy

from widthwise.engine import Federation
from widthwise.tasks import ArraySet, Signature

from .common import Document, Row, grid, main
from .synthetic import DIGITS, IMAGES, Work, watched

SERIAL = {"executor": "serial"}
NOTHING = Work(
    "nothing to train",
    "mlp",
    Signature("image", (1, 1, 1), 2),
    clients=5000,
    cohort=1000,
    samples=1,
    batch=1,
    rounds=8,
    options={"hidden": (1,)},
    engine=SERIAL,
)
WORK = (
    Work("paper's CNN", "cnn", IMAGES, 4, cohort=4, samples=64, batch=32, rounds=4, engine=SERIAL),
    Work("small CNN", "cnn-small", DIGITS, 40, cohort=40, samples=40, batch=10, rounds=10, engine=SERIAL),
    Work("MLP 64-128-64-10", "mlp", DIGITS, 500, cohort=100, samples=20, batch=10, rounds=20, engine=SERIAL),
    NOTHING,
    replace(NOTHING, name="nothing to train, without stacks", engine={**SERIAL, "stack": 1}),
)
TINY = (replace(NOTHING, cohort=5, rounds=3),)


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Measure."""
    for work in TINY if options.tiny else WORK:
        fed = work.federation()
        engine: list[float] = []
        bare: list[float] = []
        for _ in range(1 if options.tiny else 3):
            bare += bare_seconds(fed)
            engine += watched(fed).cpu_seconds
        ours, theirs = statistics.median(engine), statistics.median(bare)
        samples = work.cohort * work.samples
        yield {
            "work": work.name,
            "cohort": work.cohort,
            "samples": work.samples,
            "batch": work.batch,
            "engine_samples_per_second": samples / ours,
            "bare_samples_per_second": samples / theirs,
            "engine_ms_per_client": 1e3 * ours / work.cohort,
            "bare_ms_per_client": 1e3 * theirs / work.cohort,
            "share": theirs / ours,
        }


def bare_seconds(fed: Federation) -> list[float]:
    """Return the CPU seconds of each round but the first of a loop without a framework."""
    config, train = fed.training, fed.task.train
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
        for client in torch.randperm(fed.task.num_clients, generator=generator)[: config.cohort].tolist():
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


def headline(document: Document) -> str:
    """Return the answer in a sentence."""
    first, *_ = document["rows"]
    turns = [row for row in document["rows"] if row["work"].startswith(NOTHING.name)]
    return (
        f"{first['share']:.2f} of the bare loop's samples a second for the {first['work']} (aim: at least "
        f"0.90); a client with nothing to train costs {turns[0]['engine_ms_per_client']:.2g} ms, in the "
        f"bare loop {turns[0]['bare_ms_per_client']:.2g}."
    )


def table(document: Document) -> str:
    """Return the figures of every work."""
    header = (
        "work",
        "clients a round x samples, batch",
        "widthwise (samples/s)",
        "bare loop (samples/s)",
        "widthwise / bare loop",
        "a client's turn, widthwise (ms)",
        "bare loop (ms)",
    )
    return grid(
        header,
        (
            (
                row["work"],
                f"{row['cohort']:,} x {row['samples']}, {row['batch']}",
                f"{row['engine_samples_per_second']:,.0f}",
                f"{row['bare_samples_per_second']:,.0f}",
                f"{row['share']:.2f}",
                f"{row['engine_ms_per_client']:.3g}",
                f"{row['bare_ms_per_client']:.3g}",
            )
            for row in document["rows"]
        ),
    )


if __name__ == "__main__":
    main(__doc__, rows, table)
