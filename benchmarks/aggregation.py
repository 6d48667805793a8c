"""How fast are updates averaged? Bytes of updates folded in a second, as a ratio to copying them.

10,000 updates of the paper's CIFAR-10 network, a quarter of them at each of four widths, are folded into
one ``CoordinateMean``: checks, sums and weights. A few updates of each width stand for all; together they
are larger than the caches. Compared with ``copy_`` of the very same float32 tensors into tensors of their
own, so that both sides read memory, and copying writes it too; both on one thread, in turn. The order is
that of a round (largest slices first), and, as the worst case, widths in turn.

    python benchmarks/aggregation.py [--updates N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from widthwise.aggregation import CoordinateMean
from widthwise.core.params import Params
from widthwise.core.records import SliceSpec
from widthwise.engine.environment import environment
from widthwise.slicing import trace
from widthwise.tasks import Signature, resolve_model

WIDTHS = (1.0, 0.75, 0.5, 0.25)
EACH, PARTS = 8, 5

Update = tuple[SliceSpec, Params, float]


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one call, on one thread: other work of the machine counts less."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = resolve_model("cnn", Signature("image", (3, 32, 32), 10))
    space = trace(model.build(0), model.example_inputs())
    shapes = dict(space.shapes(space.full()))
    generator = torch.Generator().manual_seed(0)
    pool: dict[float, list[Update]] = {
        width: [
            (spec, {n: torch.randn(s, generator=generator) for n, s in space.shapes(spec).items()}, 1.0 + i)
            for i in range(EACH)
        ]
        for width in WIDTHS
        for spec in [space.nested(width)]
    }
    # A part of the run: its updates in the order of a round, and with the widths in turn.
    count = options.updates // PARTS // len(WIDTHS)
    ordered = [pool[width][i % EACH] for width in WIDTHS for i in range(count)]
    mixed = [pool[width][i % EACH] for i in range(count) for width in WIDTHS]
    place = {id(u): {n: torch.empty_like(v) for n, v in u[1].items()} for one in pool.values() for u in one}

    def copy() -> None:
        for update in ordered:
            into = place[id(update)]
            for name, value in update[1].items():
                into[name].copy_(value)

    def folding(updates: list[Update], stats: CoordinateMean) -> Callable[[], None]:
        def fold() -> None:
            for spec, delta, weight in updates:
                stats.add_(space, spec, delta, weight)

        return fold

    size = sum(4 * value.numel() for _, delta, _ in ordered for value in delta.values())
    copy()
    folding(mixed[:100], CoordinateMean(shapes))()  # warm-up
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    one, other = CoordinateMean(shapes), CoordinateMean(shapes)
    times: dict[str, list[float]] = {"copy": [], "fold": [], "fold, widths in turn": []}
    for _ in range(PARTS):
        times["copy"].append(seconds(copy))
        times["fold"].append(seconds(folding(ordered, one)))
        times["fold, widths in turn"].append(seconds(folding(mixed, other)))
    last = seconds(one.mean)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    rows = [
        {
            "what": what,
            "gigabytes_per_second": size / statistics.median(found) / 1e9,
            "ratio_to_copy": statistics.median(t / c for t, c in zip(times["copy"], found, strict=True)),
        }
        for what, found in times.items()
    ]
    for row in rows:
        print(row)
    facts = {
        "updates": PARTS * len(ordered),
        "mib_read": PARTS * size / 2**20,
        "model_mib": sum(4 * torch.Size(s).numel() for s in shapes.values()) / 2**20,
        "mean_seconds": last,
        "grown_mib": grown,
    }
    print(facts)
    if options.json:
        content = {"rows": rows, **facts, "environment": environment()}
        options.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
