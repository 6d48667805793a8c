"""What bounds the speed on a CPU? Where the time of a client's training goes, and how fast its products run.

Rounds of the settings that simulators are compared in (`benchmarks.peers`), trained by the serial executor on
one thread, are profiled. Products (convolutions and matrix products, forward and backward) are the part that
every simulator has to do, and their speed stands beside the most that a large product of matrices or a large
convolution reaches: nobody who trains these clients one by one on this core beats the last column.

Then whole runs, again by the serial executor: what of a round goes into training, which workers share, and
the rest, which is the server's.

    python -m benchmarks.limits [--out FILE.json]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # read by torch when it is imported: no line per profile

import torch
from torch.autograd.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

from widthwise.core.records import Answer, RoundRecord
from widthwise.core.threads import one_thread
from widthwise.engine import Federation, run_federation
from widthwise.engine.executors import EXECUTORS
from widthwise.engine.round import Broadcast, plan_round
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner, Stack

from .common import Document, Row, grid, in_turn, main, precisions, with_untried
from .peers.widthwise_peer import Ends, federation
from .peers.work import SETTINGS, WARMUP, Job, Log, Setting
from .synthetic import runner_of, trains_here

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PARTS = {
    "products": ("conv", "mm", "linear"),
    "normalisation": ("norm",),
    "copies and casts": ("copy_", "clone", "_to_copy", "cat"),
    "optimizer": ("sgd",),
}
"""Part -> what names of its operations contain; the first that fits counts."""
OTHERS, BETWEEN = "other operations", "between operations"


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Measure."""
    for name, setting in SETTINGS.items():
        if options.tiny:
            setting = replace(setting, clients=4, cohort=4, samples=2, batch_size=2)
        setting = replace(setting, rounds=setting.rounds // 2)
        for precision in precisions():
            fed = federation(Job(setting, processes=1, threads=1, precision=precision))
            train = _round(fed)
            yield {
                "part": "training",
                "setting": name,
                "precision": precision,
                **_profiled(train, repeats=1 if options.tiny else 3),
                "peak_gflops": _peak(DTYPES[precision], size=64 if options.tiny else 2048),
            }
            yield {"part": "round", "setting": name, "precision": precision, **_whole(fed, setting)}


def _round(fed: Federation) -> Callable[[], None]:
    """Return what trains the cohort of the first round."""
    plan, state = plan_round(fed, ServerState.initial(fed))
    return partial(trains_here(fed), state, plan)


class _Watch:
    """A runner that notes how long it has trained."""

    def __init__(self, runner: ClientRunner) -> None:
        self._runner, self.stacks, self.seconds = runner, runner.stacks, 0.0

    def __call__(self, broadcast: Broadcast, stack: Stack) -> Sequence[Answer]:
        start = time.perf_counter()
        answers = self._runner(broadcast, stack)
        self.seconds += time.perf_counter() - start
        return answers


class _Rounds(Ends):
    """Notes when rounds end, and how long has been trained then."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__(Log())
        self.watch, self.trained = watch, list[float]()

    def on_round(self, record: RoundRecord) -> None:
        """Note both."""
        super().on_round(record)
        self.trained.append(self.watch.seconds)


def _whole(fed: Federation, setting: Setting) -> Row:
    """Return the seconds that a client takes in a round of a run, its training and the rest."""
    watch: Any = _Watch(runner_of(fed))
    rounds = _Rounds(watch)
    with tempfile.TemporaryDirectory() as folder, one_thread():
        executor = EXECUTORS["serial"].value(watch, 1)
        run_federation(fed, Path(folder) / "run", sinks=[rounds], executor=executor)
    # As in the comparison, the first rounds and the last one are left out: they compile, and save.
    clients = setting.cohort * setting.rounds
    whole, trained = (
        (times[WARMUP + setting.rounds - 1] - times[WARMUP - 1]) / clients
        for times in (rounds.log.ends, rounds.trained)
    )
    return {"cohort": setting.cohort, "training_s": trained, "server_s": whole - trained}


def _profiled(train: Callable[[], None], repeats: int) -> Row:
    """Return the share of each part in the time, and the speed of the products."""
    train()  # compiles what is compiled for each shape
    with profile():
        train()  # the memory for what a profile notes is taken here, not between the tensors of the next
    with FlopCounterMode(display=False) as counted:
        train()
    shares: list[Counter[str]] = []
    for _ in range(repeats):
        with profile() as found:
            start = time.perf_counter()
            train()
            whole = time.perf_counter() - start
        seconds: Counter[str] = Counter()
        for event in found.key_averages():
            seconds[_part(event.key)] += event.self_cpu_time_total / 1e6
        seconds[BETWEEN] = max(0.0, whole - seconds.total())
        shares.append(Counter({part: value / whole for part, value in seconds.items()}))
    share = {part: statistics.median(one[part] for one in shares) for part in (*PARTS, OTHERS, BETWEEN)}
    (unprofiled,) = in_turn(repeats, {"": train}, time.perf_counter).values()
    products = share["products"] * statistics.median(unprofiled)
    return {**share, "gflops": counted.get_total_flops() / products / 1e9}


def _part(operation: str) -> str:
    return next(
        (part for part, words in PARTS.items() if any(word in operation.lower() for word in words)), OTHERS
    )


def _peak(dtype: torch.dtype, size: int) -> float:
    """Return the operations a second of a large product or convolution, whichever is faster, in 10^9.

    Libraries differ: on some processors the one for products leaves out the widest vectors.
    """
    one, other = (torch.randn(size, size).to(dtype) for _ in "ab")
    channels, side = size // 8, 16
    images = torch.randn(64, channels, side, side).to(dtype, memory_format=torch.channels_last)
    convolution = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    convolution = convolution.to(dtype=dtype, memory_format=torch.channels_last).requires_grad_(False)
    operations = {
        "product": (2 * size**3, lambda: one @ other),
        "convolution": (2 * 9 * channels**2 * images[:, 0].numel(), lambda: convolution(images)),
    }
    seconds = in_turn(5, {name: way for name, (_, way) in operations.items()}, time.perf_counter)
    return max(count / min(seconds[name]) for name, (count, _) in operations.items()) / 1e9


def table(document: Document) -> str:
    """Return shares of the time and speeds of the products, and what is left to the server."""
    parts = (*PARTS, OTHERS, BETWEEN)
    header = (
        "setting",
        "precision",
        *(f"{part} (%)" for part in parts),
        "products (GFLOP/s)",
        "a large one (GFLOP/s)",
        "faster without the rest",
        "and at the speed of the large one",
    )
    lines = (
        (
            row["setting"],
            row["precision"],
            *(f"{100 * row[part]:.0f}" for part in parts),
            f"{row['gflops']:.0f}",
            f"{row['peak_gflops']:.0f}",
            f"{1 / row['products']:.2f}",
            f"{row['peak_gflops'] / row['gflops'] / row['products']:.2f}",
        )
        for row in document["rows"]
        if row["part"] == "training"
    )
    rounds = (
        (
            row["setting"],
            row["precision"],
            row["cohort"],
            f"{1e3 * row['training_s']:.3g}",
            f"{1e3 * row['server_s']:.3g}",
            f"{1 + row['training_s'] / row['server_s']:.1f}",
        )
        for row in document["rows"]
        if row["part"] == "round"
    )
    whole = grid(
        (
            "setting",
            "precision",
            "clients a round",
            "a client's training (ms)",
            "the rest (ms a client)",
            "faster with endless workers",
        ),
        rounds,
    )
    return "\n\n".join((with_untried(grid(header, lines), document), whole))


if __name__ == "__main__":
    main(__doc__, rows, table)
