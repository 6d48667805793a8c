"""Does memory grow with the number of registered clients? Set-up and peak memory, cohort held fixed.

HAS-FL over clients that share a pool of samples in the size of the bundled digits (1x8x8 bytes), each
holding 20 of them, a hundred in each cohort; estimates are measured and everything is saved in each round.
Each population runs in a process of its own; peak resident memory is that of the server and of the
largest worker.

    python benchmarks/registered_clients.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

POPULATIONS = (1_000, 10_000, 100_000, 1_000_000)
POOL, SAMPLES, ROUNDS, COHORT = 20_000, 20, 3, 100


def run(clients: int) -> None:
    """Train a few rounds over ``clients`` clients; print seconds of set-up and peak memory in MiB."""
    from widthwise.core.seeds import SeedTree
    from widthwise.engine import EngineConfig, Federation, run_federation
    from widthwise.engine.round import plan_round
    from widthwise.engine.state import ServerState
    from widthwise.methods import build_method
    from widthwise.slicing import trace
    from widthwise.tasks import (
        ArraySet,
        CapacityConfig,
        PooledPartition,
        Signature,
        Task,
        resolve_model,
    )
    from widthwise.training import TrainingConfig

    generator = torch.Generator().manual_seed(0)
    signature = Signature("image", (1, 8, 8), 10)

    def data(size: int) -> ArraySet:
        values = torch.randint(0, 256, (size, 1, 8, 8), dtype=torch.uint8, generator=generator)
        targets = torch.randint(0, 10, (size,), generator=generator)
        return ArraySet("random", signature, tuple("0123456789"), values, targets, (127.5,), (64.0,))

    capacity = CapacityConfig()
    model = resolve_model("cnn-small", signature)
    space = trace(model.build(0), model.example_inputs())
    train, test = data(POOL), data(1000)
    start = time.perf_counter()
    task = Task(
        name="random",
        train=train,
        test=test,
        partition=PooledPartition(torch.randperm(POOL, generator=generator), SAMPLES, clients),
        capacities=capacity.draw(clients, SeedTree(0)),
        tiers=capacity.levels(),
        model=model,
    )
    federation = Federation(
        task=task,
        space=space,
        method=build_method({"name": "hasfl", "warmup": 0, "adapt_every": 1}),
        training=TrainingConfig(rounds=ROUNDS, cohort=COHORT, local_epochs=1, batch_size=10),
        engine=EngineConfig(checkpoint_every=1, workers=2),
        seed=0,
        config={"method": {"name": "hasfl"}, "seed": 0},
        config_hash="benchmark",
        label="benchmark",
    )
    plan_round(federation, ServerState.initial(federation))  # all that the first round waits for
    setup = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        run_federation(federation, Path(folder) / "run")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    whole = time.perf_counter() - start
    row = {"clients": clients, "setup_s": setup, "whole_s": whole, "server_mib": own, "worker_mib": workers}
    print(json.dumps(row))


def main() -> None:
    """Measure each population in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, help="measure this population in this process")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.clients:
        run(options.clients)
        return
    rows = []
    for clients in POPULATIONS:
        command = [sys.executable, __file__, "--clients", str(clients)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(rows[-1])
    small, large = rows[0], rows[-1]
    grown = {key: large[key] / small[key] - 1 for key in ("server_mib", "worker_mib")}
    print({"grown (allowed 0.1)": grown, "set-up seconds (allowed 10)": large["setup_s"]})
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "grown": grown}, indent=2) + "\n")


if __name__ == "__main__":
    main()
