"""Is cost real? Time of local epochs against width, for every registered model, as a ratio to full width.

Clients of one width are trained by the engine's serial executor, in stacks where it stacks, on one thread.
Widths run in turn; medians of CPU seconds are compared with the multiply-accumulates of the slices.

    python -m benchmarks.cost_law [--out FILE.json]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby

from widthwise.core.records import Cohort
from widthwise.engine import Federation
from widthwise.engine.round import RoundPlan
from widthwise.engine.state import ServerState
from widthwise.tasks import MODELS

from .common import Document, Row, grid, in_turn, main, precisions, with_untried
from .synthetic import DIGITS, IMAGES, TEXT, Work, trains_here

WIDTHS = (1.0, 0.75, 0.5, 0.25)
PAPER, TARGETS = "cnn", {0.25: 0.11, 0.5: 0.30}  # the largest time ratios at its better precision
SMALL = {"mlp": 100, "cnn-small": 20}  # so many clients, or there would be nothing to time


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Measure."""
    for name in SMALL if options.tiny else MODELS.names():
        for precision in precisions():
            yield from _ratios(_work(name), precision, repeats=1 if options.tiny else 5)


def _work(model: str) -> Work:
    if model in SMALL:
        return Work(model, model, DIGITS, SMALL[model], SMALL[model], samples=20, batch=10, rounds=1)
    signature = IMAGES if "image" in MODELS[model].value.kinds else TEXT
    return Work(model, model, signature, clients=1, cohort=1, samples=128, batch=32, rounds=1)


def _ratios(work: Work, precision: str, repeats: int) -> Iterator[Row]:
    fed = work.federation(precision=precision)
    epoch = _epochs(fed)
    found = in_turn(repeats, {str(width): partial(epoch, width) for width in WIDTHS})
    samples = work.clients * work.samples
    seconds = {width: statistics.median(found[str(width)]) / samples for width in WIDTHS}
    macs = {width: fed.space.macs(fed.space.nested(width)) for width in WIDTHS}
    for width in WIDTHS:
        yield {
            "model": work.model,
            "precision": precision,
            "width": width,
            "ms_per_sample": 1e3 * seconds[width],
            "gflops": 6 * macs[width] / seconds[width] / 1e9,  # a step is three passes, a MAC two operations
            "time_ratio": seconds[width] / seconds[1.0],
            "mac_ratio": macs[width] / macs[1.0],
        }


def _epochs(fed: Federation) -> Callable[[float], None]:
    """Return what trains all clients at a width."""
    task, state, train = fed.task, ServerState.initial(fed), trains_here(fed)
    everybody = tuple(range(task.num_clients))
    samples = dict(zip(everybody, task.partition.sizes().tolist(), strict=True))

    def epoch(width: float) -> None:
        train(state, RoundPlan(Cohort(0, everybody), dict.fromkeys(everybody, width), samples))

    return epoch


def table(document: Document) -> str:
    """Return time ratios, and in brackets those of multiply-accumulates."""
    narrow = WIDTHS[1:]
    header = ("model", "precision", "ms a sample", "GFLOP/s", *(f"width {width:g}" for width in narrow))
    lines = []
    for (model, precision), found in groupby(document["rows"], lambda row: (row["model"], row["precision"])):
        full, *others = found
        lines.append(
            (
                model,
                precision,
                f"{full['ms_per_sample']:.3g}",
                f"{full['gflops']:.0f}",
                *(f"{row['time_ratio']:.3f} ({row['mac_ratio']:.3f})" for row in others),
            )
        )
    return with_untried(grid(header, lines), document)


def headline(document: Document) -> str:
    """Return the ratios of the paper's network at each precision."""
    paper = [row for row in document["rows"] if row["model"] == PAPER and row["width"] in TARGETS]
    said = [
        f"{', '.join(_at_width(row) for row in found)} in {precision}"
        for precision, found in groupby(paper, lambda row: row["precision"])
    ]
    aims = " and ".join(f"{aim:.2f} at width {width:g}" for width, aim in TARGETS.items())
    return (
        f"the paper's CNN takes, of its time at full width, {'; '.join(said)} (aim, at the better precision: "
        f"at most {aims})."
    )


def _at_width(row: Row) -> str:
    return f"{row['time_ratio']:.3f} at width {row['width']:g} (MACs {row['mac_ratio']:.3f})"


if __name__ == "__main__":
    main(__doc__, rows, table)
