"""How much faster are more processes? The same rounds with 1, 2, .. n workers (strong scaling).

Wall-clock time of whole rounds, from the end of one to the end of the next, so that the server's work counts.
Cores that share caches and memory slow each other down whatever runs on them; how much is told by independent
copies: n serial runs of the same work at once, which exchange nothing. Their joint speed is the most that n
workers could reach.

    python -m benchmarks.scaling [--most N] [--ray] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby

from widthwise.tasks import CapacityConfig

from .common import Document, Row, grid, main
from .synthetic import DIGITS, IMAGES, Work, in_fresh_processes, watched

COPIES = "independent copies"
SLICES = {"capacity": CapacityConfig(), "method": {"name": "heterofl"}}
WORK = (
    Work("paper's CNN, slices", "cnn", IMAGES, 20, cohort=20, samples=64, batch=32, rounds=4, **SLICES),
    Work("small CNN", "cnn-small", DIGITS, 100, cohort=100, samples=40, batch=10, rounds=8),
    Work("MLP 64-128-64-10", "mlp", DIGITS, 2000, cohort=1000, samples=20, batch=10, rounds=12),
)
TINY = (replace(WORK[-1], clients=20, cohort=10, rounds=3),)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what this benchmark can be told."""
    parser.add_argument("--most", type=int, default=os.cpu_count(), help="processes; one per core by default")
    parser.add_argument("--ray", action="store_true", help="also with Ray's executor")


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Measure; the ways to run a work are repeated in turn."""
    executors = ["process", *(["ray"] if options.ray else [])]
    counts = _counts(options.most)
    for work in TINY if options.tiny else WORK:
        ways: dict[tuple[str, int], Callable[[], list[float]]] = {
            ("serial", 1): partial(_seconds, work, "serial", 1)
        }
        for count in counts:
            ways |= {(name, count): partial(_seconds, work, name, count) for name in executors}
        ways |= {(COPIES, count): partial(_of_copies, work, count) for count in counts}
        found: dict[tuple[str, int], list[float]] = defaultdict(list)
        for _ in range(1 if options.tiny else 3):
            for way, measure in ways.items():
                found[way] += measure()
        yield from _speed_ups(work, {way: statistics.median(seconds) for way, seconds in found.items()})


def _counts(most: int) -> list[int]:
    """Return powers of two up to a number of processes, and that number."""
    return [*(2**k for k in range(most.bit_length()) if 2**k < most), most]


def _seconds(work: Work, executor: str, workers: int) -> list[float]:
    return watched(work.federation(executor=executor, workers=workers)).seconds


def _of_copies(work: Work, count: int) -> list[float]:
    """Return the seconds in which one round's work is done, if so many copies are under way at once."""
    each = in_fresh_processes(_serial, [work] * count)
    return [statistics.mean(seconds) / count for seconds in zip(*each, strict=True)]


def _serial(work: Work) -> list[float]:
    return _seconds(work, "serial", 1)


def _speed_ups(work: Work, seconds: dict[tuple[str, int], float]) -> Iterator[Row]:
    for (executor, processes), value in seconds.items():
        # Serial rounds are compared with one worker process, everything else with one process of its kind.
        alone = seconds["process" if executor == "serial" else executor, 1]
        yield {
            "work": work.name,
            "executor": executor,
            "processes": processes,
            "round_s": value,
            "samples_per_second": work.cohort * work.samples / value,
            "speed_up": alone / value,
            "efficiency": alone / value / processes,
        }


def headline(document: Document) -> str:
    """Return the speed-ups with the most processes."""
    most = max(row["processes"] for row in document["rows"])
    found = {(row["work"], row["executor"], row["processes"]): row["speed_up"] for row in document["rows"]}
    said = [
        f"{value:.2f} for the {work} (independent copies: {found[work, COPIES, most]:.2f})"
        for (work, executor, processes), value in found.items()
        if (executor, processes) == ("process", most)
    ]
    return f"speed-up with {most} worker processes: {', '.join(said)}."


def table(document: Document) -> str:
    """Return a row for each way to run a work."""
    header = ("work", "executor", "processes", "a round (s)", "samples/s", "speed-up", "efficiency")
    lines = [
        (
            name if number == 0 else "",
            row["executor"],
            row["processes"],
            f"{row['round_s']:.3g}",
            f"{row['samples_per_second']:,.0f}",
            f"{row['speed_up']:.2f}",
            f"{row['efficiency']:.2f}",
        )
        for name, found in groupby(document["rows"], lambda row: row["work"])
        for number, row in enumerate(found)
    ]
    return grid(header, lines)


if __name__ == "__main__":
    main(__doc__, rows, table, arguments)
