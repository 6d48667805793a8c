"""What a client's turn costs on each executor.

Rounds of many clients on each executor in turn, after two that start its workers; ``engine.stack`` is 1. A
model that takes next to no time shows what handing out costs, a large one what its tensors add.

    python -m benchmarks.executors [--workers N] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

from widthwise.engine import EXECUTORS, Federation
from widthwise.engine.disk import Disk
from widthwise.engine.round import Broadcast, assignments, plan_round
from widthwise.engine.state import ServerState

from .common import Document, Row, grid, main
from .synthetic import DIGITS, Work, runner_of

CLIENTS = 100
WORK = (
    Work("MLP 64-16-10", "mlp", DIGITS, CLIENTS, CLIENTS, 18, batch=16, rounds=1, options={"hidden": (16,)}),
    Work("small CNN", "cnn-small", DIGITS, CLIENTS, CLIENTS, 18, batch=16, rounds=1),
    Work(
        "MLP 64-1024-1024-10",
        "mlp",
        DIGITS,
        CLIENTS,
        CLIENTS,
        18,
        batch=16,
        rounds=1,
        options={"hidden": (1024, 1024)},
    ),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what this benchmark can be told."""
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="one per core by default")


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Measure; Ray's executor only where Ray is installed."""
    names = [name for name in EXECUTORS.names() if name != "ray" or (find_spec("ray") and not options.tiny)]
    for work in WORK[:1] if options.tiny else WORK:
        fed = work.federation()
        for name in names:
            found = _seconds(fed, name, options.workers, repeats=1 if options.tiny else 5)
            yield {
                "work": work.name,
                "executor": name,
                "workers": 1 if name == "serial" else options.workers,
                "ms_per_client": 1e3 * statistics.median(found) / work.clients,
            }


def _seconds(fed: Federation, name: str, workers: int, repeats: int) -> list[float]:
    """Return what rounds take."""
    runner = replace(runner_of(fed), stack=1)
    plan, state = plan_round(fed, ServerState.initial(fed))
    handed_out = list(assignments(fed, state, plan, Disk(Path("nowhere"))))
    taken = []
    with EXECUTORS[name].value(runner, workers) as executor:
        for _ in range(2 + repeats):
            start = time.perf_counter()
            deque(executor.run(Broadcast.of(state), handed_out), maxlen=0)
            taken.append(time.perf_counter() - start)
    return taken[2:]


def table(document: Document) -> str:
    """Return a row for each work."""
    by_work = {
        work: {row["executor"]: row for row in found}
        for work, found in groupby(document["rows"], lambda row: row["work"])
    }
    names = list(dict.fromkeys(row["executor"] for row in document["rows"]))
    workers = {row["executor"]: row["workers"] for row in document["rows"]}
    header = ("work", *(f"{name}, {workers[name]} (ms a client)" for name in names))
    return grid(
        header,
        ((work, *(f"{of[name]['ms_per_client']:.2f}" for name in names)) for work, of in by_work.items()),
    )


if __name__ == "__main__":
    main(__doc__, rows, table, arguments)
