"""How fast are updates averaged? Bytes of updates folded in a second, as a ratio to copying them.

10,000 updates of the paper's CIFAR-10 network, a quarter of them at each of four widths, are folded into
one ``CoordinateMean``: checks, sums and weights. Some updates of each width stand for all, as many as no
cache holds: each update of a round comes from memory. Compared with ``copy_`` of the very same float32
tensors into tensors of their own, so that both sides read memory, and copying writes it too; both on one
thread, in turn. The order is that of a round (largest slices first), and, as the worst case, widths in turn.

    python -m benchmarks.aggregation [--out FILE.json]
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Iterator
from math import ceil

import torch

from widthwise.aggregation import CoordinateMean
from widthwise.core.params import Params
from widthwise.core.records import SliceSpec
from widthwise.slicing import trace
from widthwise.tasks import resolve_model

from .common import Document, Row, grid, in_turn, main
from .memory import peak_bytes
from .synthetic import IMAGES

WIDTHS = (1.0, 0.75, 0.5, 0.25)
UPDATES, TINY = 10_000, 40
PARTS = 5
DISTINCT_BYTES = 96 * 2**20  # of each width
ORDERED, MIXED = "that of a round, largest slices first", "widths in turn"

Update = tuple[SliceSpec, Params, float]


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Measure."""
    updates, distinct = (TINY, 1) if options.tiny else (UPDATES, DISTINCT_BYTES)
    model = resolve_model("cnn", IMAGES)
    space = trace(model.build(0), model.example_inputs())
    shapes = dict(space.shapes(space.full()))
    generator = torch.Generator().manual_seed(0)
    pool: dict[float, list[Update]] = {
        width: [
            (spec, {n: torch.randn(s, generator=generator) for n, s in space.shapes(spec).items()}, 1.0 + i)
            for i in range(ceil(distinct / space.upload_bytes(spec)))
        ]
        for width in WIDTHS
        for spec in [space.nested(width)]
    }
    # A part of the run: its updates in the order of a round, and with the widths in turn.
    count = updates // PARTS // len(WIDTHS)
    ordered = [pool[width][i % len(pool[width])] for width in WIDTHS for i in range(count)]
    mixed = [pool[width][i % len(pool[width])] for i in range(count) for width in WIDTHS]
    place = {id(u): {n: torch.empty_like(v) for n, v in u[1].items()} for one in pool.values() for u in one}

    def copy() -> None:
        for update in ordered:
            into = place[id(update)]
            for name, value in update[1].items():
                into[name].copy_(value)

    def folding(some: list[Update]) -> Callable[[], None]:
        stats = CoordinateMean(shapes)

        def fold() -> None:
            for spec, delta, weight in some:
                stats.add_(space, spec, delta, weight)

        return fold

    ways = {"copy": copy, ORDERED: folding(ordered), MIXED: folding(mixed)}
    for way in ways.values():
        way()
    before = peak_bytes(os.getpid())
    times = in_turn(PARTS, ways)
    grown = peak_bytes(os.getpid()) - before
    size = sum(value.nbytes for _, delta, _ in ordered for value in delta.values())
    for order in (ORDERED, MIXED):
        yield {
            "order": order,
            "updates": PARTS * len(ordered),
            "read_gib": PARTS * size / 2**30,
            "gb_per_second": size / statistics.median(times[order]) / 1e9,
            "copy_gb_per_second": size / statistics.median(times["copy"]) / 1e9,
            "to_copy": statistics.median(c / t for c, t in zip(times["copy"], times[order], strict=True)),
            "grown_mib": grown / 2**20,
        }


def headline(document: Document) -> str:
    """Return the answer in a sentence."""
    first, turns = document["rows"]
    return (
        f"updates are folded at {first['to_copy']:.2f} of the bandwidth of copying them (aim: at least "
        f"0.50), {first['gb_per_second']:.1f} GB a second on one thread; at {turns['to_copy']:.2f} where "
        "neighbours differ in width, which those of a round do not."
    )


def table(document: Document) -> str:
    """Return a row for each order."""
    header = (
        "order of the updates",
        "updates",
        "read (GiB)",
        "folded (GB/s)",
        "copied (GB/s)",
        "folded / copied",
        "memory grew by (MiB)",
    )
    return grid(
        header,
        (
            (
                row["order"],
                f"{row['updates']:,}",
                f"{row['read_gib']:.0f}",
                f"{row['gb_per_second']:.1f}",
                f"{row['copy_gb_per_second']:.1f}",
                f"{row['to_copy']:.2f}",
                f"{row['grown_mib']:.0f}",
            )
            for row in document["rows"]
        ),
    )


if __name__ == "__main__":
    main(__doc__, rows, table)
