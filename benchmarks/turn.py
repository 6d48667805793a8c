"""What does a client's turn cost where there is next to nothing to train? Its parts, beside a bare loop's.

The full models of the settings that simulators are compared in (`benchmarks.peers`), one sample, one thread,
in turn. A bare loop copies the parameters into its module, makes the step and adds what it has trained to a
sum in float32. In the engine linear layers take their step in the backward pass; then it makes the
difference, looks whether it is finite and adds it, in float32 where a worker sums clients of one slice.

    python -m benchmarks.turn [--out FILE.json]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from functools import partial

import torch

from widthwise.core.descent import Descent, descending
from widthwise.core.device import CPU
from widthwise.core.params import first_non_finite, load_
from widthwise.core.recycled import Recycled
from widthwise.core.threads import one_thread
from widthwise.engine.state import ServerState
from widthwise.training import ModuleCache
from widthwise.training.loop import large_linear_weights, update_of

from .common import Document, Row, grid, in_turn, main
from .peers.widthwise_peer import federation
from .peers.work import SETTINGS, Job, train

BARE = ("parameters copied", "one step", "added")
OURS = ("parameters copied", "one step, in the backward pass", "difference", "looked through", "added")


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Measure."""
    for name in ("A", "B"):
        with one_thread():
            yield {"setting": name, **_turn(name, repeats=1 if options.tiny else 40)}


def _turn(setting: str, repeats: int) -> Row:
    """Return the milliseconds of each part, and the number of parameters."""
    job = Job(SETTINGS[setting], processes=1, threads=1, precision="fp32")
    fed = federation(job)
    space, spec, params = fed.space, fed.space.full(), ServerState.initial(fed).params
    module, memory = ModuleCache(space, CPU)(spec), Recycled()
    samples, one = job.setting.data(1), torch.zeros(1, dtype=torch.int64)
    delta = update_of(module, params, memory, CPU)
    sums = {p: torch.zeros_like(value) for p, value in params.items()}
    stepping = large_linear_weights(space, module)

    def step_in_backward_pass() -> None:
        with descending(stepping, Descent(job.setting.lr, 0.0)):
            train(module, samples, one, job)

    def add() -> None:
        for p, value in delta.items():
            sums[p].add_(value, alpha=1)

    ways = {
        "parameters copied": partial(load_, module, params),
        "one step": partial(train, module, samples, one, job),
        "one step, in the backward pass": step_in_backward_pass,
        "difference": partial(update_of, module, params, memory, CPU),
        "looked through": partial(first_non_finite, delta),
        "added": add,
    }
    found = {way: 1e3 * statistics.median(seconds) for way, seconds in in_turn(repeats, ways).items()}
    return {"parameters": space.num_params(spec), **found}


def _ratio(row: Row) -> float:
    return sum(row[part] for part in OURS) / sum(row[part] for part in BARE)


def table(document: Document) -> str:
    """Return a row for each setting, with the whole turn beside that of a bare loop."""
    parts = tuple(dict.fromkeys((*OURS, *BARE)))
    header = (
        "setting, full model",
        "parameters",
        *(f"{part} (ms)" for part in parts),
        "engine's / bare loop's",
    )
    return grid(
        header,
        (
            (
                row["setting"],
                f"{row['parameters']:,}",
                *(f"{row[part]:.2f}" for part in parts),
                f"{_ratio(row):.2f}",
            )
            for row in document["rows"]
        ),
    )


if __name__ == "__main__":
    main(__doc__, rows, table)
