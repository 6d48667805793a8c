"""Does memory grow with the cohort? Peak memory and time for each client, from ten to thousands in a round.

The paper's network at a quarter of its channels, which is never trained in stacks, so that every update
travels alone: slices, HeteroFL's way; then with the estimator in every round, which needs each update
twice; and with control variates, which clients keep on disk (thousands of clients take some gigabytes where
temporary files lie). Each row is measured in a process of its own.

    python -m benchmarks.cohort [--out FILE.json]
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from widthwise.tasks import CapacityConfig

from .common import Document, Row, grid, main
from .memory import peak_bytes
from .synthetic import DIGITS, Work, in_fresh_processes, watched

COHORTS = (10, 30, 100, 300, 1000, 3000)
METHODS: Mapping[str, Mapping[str, Any]] = {
    "slices": {"name": "heterofl"},
    "with the estimator": {"name": "hasfl", "warmup": 0, "adapt_every": 1},
    "with control variates": {"name": "heterofl", "objective": "control-variates"},
}


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Measure each cohort in a fresh process."""
    names, cohorts = ([*METHODS][-1:], (3,)) if options.tiny else ([*METHODS], COHORTS)
    for name in names:
        for cohort in cohorts:
            yield from in_fresh_processes(_measure, [_work(name, cohort)])


def _work(name: str, cohort: int) -> Work:
    return Work(
        name,
        "cnn",
        DIGITS,
        clients=max(COHORTS),
        cohort=cohort,
        samples=20,
        batch=10,
        rounds=4,
        options={"scale": 0.25},
        pool=2000,
        capacity=CapacityConfig(),
        method=METHODS[name],
        momentum=0.0,  # which control variates ask for
    )


def _measure(work: Work) -> Row:
    fed = work.federation()
    watch = watched(fed)
    model = sum(4 * math.prod(shape) for shape in fed.space.shapes(fed.space.full()).values())
    return {
        "method": work.name,
        "cohort": work.cohort,
        "workers": fed.engine.workers,
        "ms_per_client": 1e3 * statistics.median(watch.seconds) / work.cohort,
        "server_mib": peak_bytes(os.getpid()) / 2**20,
        "worker_mib": watch.worker_bytes / 2**20,
        "models_mib": work.cohort * model / 2**20,
    }


def headline(document: Document) -> str:
    """Return by how much memory grows from the smallest cohort on, at most."""
    by_method = [list(found) for _, found in groupby(document["rows"], lambda row: row["method"])]
    grown, method = max(
        (row["server_mib"] / rows[0]["server_mib"], row["method"]) for rows in by_method for row in rows
    )
    first, last = by_method[0][0], by_method[0][-1]
    return (
        f"with up to {last['cohort']:,} clients a round, whose models would take {last['models_mib']:,.0f} "
        f"MiB, the server's peak memory is at most {grown:.2f} times ({method}) that with "
        f"{first['cohort']:,}."
    )


def table(document: Document) -> str:
    """Return a row for each cohort."""
    lines = [
        (
            name if number == 0 else "",
            f"{row['cohort']:,}",
            f"{row['ms_per_client']:.2f}",
            f"{row['server_mib']:.0f}",
            f"{row['worker_mib']:.0f}",
            f"{row['models_mib']:,.0f}",
        )
        for name, found in groupby(document["rows"], lambda row: row["method"])
        for number, row in enumerate(found)
    ]
    header = ("rounds", "cohort", "ms a client", "server (MiB)", "a worker (MiB)", "cohort x model (MiB)")
    return grid(header, lines)


if __name__ == "__main__":
    main(__doc__, rows, table)
