"""Does memory grow with the number of registered clients? Set-up and peak memory, cohort held fixed.

HAS-FL over clients that share a pool of samples in the size of the bundled digits (1x8x8 bytes), each
holding 20 of them, a hundred in each cohort; estimates are measured and everything is saved in each round.
Each population runs in a process of its own; peak resident memory is that of the server and of the
largest worker.

    python -m benchmarks.registered_clients [--out FILE.json]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator

from widthwise.engine.round import plan_round
from widthwise.engine.state import ServerState
from widthwise.tasks import CapacityConfig

from .common import Document, Row, grid, main
from .memory import peak_bytes
from .synthetic import DIGITS, Work, in_fresh_processes, watched

POPULATIONS = (1_000, 10_000, 100_000, 1_000_000)
COHORT, POOL, TINY = 100, 20_000, (10,)


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Measure each population in a fresh process."""
    for clients in TINY if options.tiny else POPULATIONS:
        work = Work(
            f"{clients:,} clients",
            "cnn-small",
            DIGITS,
            clients,
            cohort=min(COHORT, clients // 2),
            samples=20,
            batch=10,
            rounds=4,
            pool=POOL,
            capacity=CapacityConfig(),
            method={"name": "hasfl", "warmup": 0, "adapt_every": 1},
            engine={"workers": 2, "eval_every": 1, "checkpoint_every": 1},
        )
        yield from in_fresh_processes(_measure, [work])


def _measure(work: Work) -> Row:
    data = work.data()
    start = time.perf_counter()
    fed = work.federation(data)
    plan_round(fed, ServerState.initial(fed))  # all that the first round waits for
    setup = time.perf_counter() - start
    watch = watched(fed)
    return {
        "clients": work.clients,
        "cohort": work.cohort,
        "workers": fed.engine.workers,
        "setup_s": setup,
        "round_s": statistics.median(watch.seconds),
        "server_mib": peak_bytes(os.getpid()) / 2**20,
        "worker_mib": watch.worker_bytes / 2**20,
    }


def headline(document: Document) -> str:
    """Return by how much memory grows from the first population to the last."""
    first, *_, last = document["rows"]
    server, worker = (last[key] / first[key] for key in ("server_mib", "worker_mib"))
    return (
        f"with {last['clients']:,} registered clients, peak memory is {server:.2f} (server) and {worker:.2f} "
        f"(worker) times that with {first['clients']:,} (aim: at most 1.10), and set-up takes "
        f"{last['setup_s']:.2g} s (aim: at most 10)."
    )


def table(document: Document) -> str:
    """Return a row for each population."""
    lines = [
        (
            f"{row['clients']:,}",
            f"{row['setup_s']:.2f}",
            f"{row['round_s']:.2f}",
            f"{row['server_mib']:.0f}",
            f"{row['worker_mib']:.0f}",
        )
        for row in document["rows"]
    ]
    header = ("registered clients", "set-up (s)", "a round (s)", "server (MiB)", "a worker (MiB)")
    return grid(header, lines)


if __name__ == "__main__":
    main(__doc__, rows, table)
