"""What a client's turn costs on each executor.

Rounds of many clients on each executor in turn, after two that start its workers; ``engine.stack`` is 1. A
model that takes next to no time shows what handing out costs, a large one what its tensors add.

    python benchmarks/executors.py [--clients N] [--workers N] [--repeats N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import deque
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from widthwise.engine import EXECUTORS, Federation
from widthwise.engine.disk import Disk
from widthwise.engine.round import Broadcast, assignments, plan_round
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig

MODELS: dict[str, Any] = {
    "mlp [16]": {"name": "mlp", "hidden": [16]},
    "cnn-small": "cnn-small",
    "mlp [1024, 1024]": {"name": "mlp", "hidden": [1024, 1024]},
}


def federation(model: Any, clients: int) -> Federation:
    return build(
        RunConfig(
            task={"dataset": "digits", "model": model, "clients": clients, "partition": {"kind": "iid"}},
            method={"name": "heterofl"},
            training={"rounds": 1, "cohort": clients, "local_epochs": 1, "batch_size": 16},
        )
    )


def seconds(fed: Federation, name: str, workers: int, repeats: int) -> list[float]:
    """Return what rounds take."""
    runner = ClientRunner(fed.task.train, fed.task.partition, fed.space, fed.method.objective, 1)
    plan, state = plan_round(fed, ServerState.initial(fed))
    handed_out = list(assignments(fed, state, plan, Disk(Path("nowhere"))))
    taken = []
    with EXECUTORS[name].value(runner, workers) as executor:
        for _ in range(2 + repeats):
            start = time.perf_counter()
            deque(executor.run(Broadcast.of(state), handed_out), maxlen=0)
            taken.append(time.perf_counter() - start)
    return taken[2:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    names = [name for name in EXECUTORS.names() if name != "ray" or find_spec("ray")]
    print(f"| model | {' | '.join(f'{name} (ms a client)' for name in names)} | ray / process |")
    print(f"|{'---|' * (len(names) + 2)}")
    for label, model in MODELS.items():
        fed = federation(model, options.clients)
        found = {
            name: statistics.median(seconds(fed, name, options.workers, options.repeats)) for name in names
        }
        cells = [f"{1000 * value / options.clients:.2f}" for value in found.values()]
        print(f"| {label} | {' | '.join(cells)} | {found.get('ray', 0) / found['process']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
