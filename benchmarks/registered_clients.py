"""Does memory grow with the number of registered clients? Peak memory of one run, cohort held fixed.

Every client holds 20 samples in the size of the bundled digits (1x8x8 bytes). Each population runs in a
process of its own; peak resident memory includes that process's workers.

    python benchmarks/registered_clients.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

POPULATIONS = (1_000, 10_000)
SAMPLES, ROUNDS, COHORT = 20, 3, 10


def run(clients: int) -> None:
    """Train a few rounds over ``clients`` clients and print peak memory in MiB: this process, its workers."""
    from widthwise.core.seeds import SeedTree
    from widthwise.engine import EngineConfig, Federation, run_federation
    from widthwise.methods import build_method
    from widthwise.slicing import trace
    from widthwise.tasks import ArraySet, CapacityConfig, Partition, Signature, Task, resolve_model
    from widthwise.training import TrainingConfig

    generator = torch.Generator().manual_seed(0)
    signature = Signature("image", (1, 8, 8), 10)

    def data(size: int) -> ArraySet:
        values = torch.randint(0, 256, (size, 1, 8, 8), dtype=torch.uint8, generator=generator)
        targets = torch.randint(0, 10, (size,), generator=generator)
        return ArraySet("random", signature, tuple("0123456789"), values, targets, (127.5,), (64.0,))

    total = clients * SAMPLES
    capacity = CapacityConfig()
    model = resolve_model("cnn-small", signature)
    task = Task(
        name="random",
        train=data(total),
        test=data(1000),
        partition=Partition(torch.arange(0, total + 1, SAMPLES), torch.arange(total)),
        capacities=capacity.draw(clients, SeedTree(0)),
        tiers=capacity.levels(),
        model=model,
    )
    federation = Federation(
        task=task,
        space=trace(model.build(0), model.example_inputs()),
        method=build_method({"name": "hasfl", "warmup": 0, "adapt_every": 1}),
        training=TrainingConfig(rounds=ROUNDS, cohort=COHORT, local_epochs=1, batch_size=10),
        engine=EngineConfig(checkpoint_every=1),
        seed=0,
        config={"method": {"name": "hasfl"}, "seed": 0},
        config_hash="benchmark",
        label="benchmark",
    )
    with tempfile.TemporaryDirectory() as folder:
        run_federation(federation, Path(folder) / "run")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        json.dumps(
            {"clients": clients, "server_mib": own, "worker_mib": workers, "data_mib": total * 72 / 2**20}
        )
    )


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
    grown = {key: large[key] - small[key] for key in ("server_mib", "worker_mib")}
    allowed = {key: 0.1 * small[key] + large["data_mib"] - small["data_mib"] for key in grown}
    print({"grown": grown, "allowed (10 % plus the data)": allowed})
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
