"""Is cost real? Wall time of one client's local epoch at each width, as a ratio to full width.

The widths are timed in turn, again and again, so that a slow moment of the machine hits all alike; the
ratio of medians is reported beside the ratio of multiply-accumulates.

    python benchmarks/cost_law.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from widthwise.core.records import ClientTask, LocalConfig
from widthwise.engine.environment import environment
from widthwise.slicing import trace
from widthwise.tasks import ArraySet, Signature, resolve_model
from widthwise.training import ModuleCache, train
from widthwise.training.plain import Plain

WIDTHS = (0.25, 0.5, 0.75, 1.0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    signature = Signature("image", (3, 32, 32), 10)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (options.samples, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 10, (options.samples,), generator=generator)
    classes = tuple(str(i) for i in range(10))
    data = ArraySet("random", signature, classes, images, labels, (127.5,) * 3, (64.0,) * 3)
    spec_of_model = resolve_model("cnn", signature)
    model = spec_of_model.build(0)
    space = trace(model, spec_of_model.example_inputs())
    params = {name: value.detach() for name, value in model.named_parameters()}
    cache = ModuleCache(space)
    config = LocalConfig(1, 32, 0.01, 0.9, 1e-4, 10.0)

    def epoch(width: float) -> float:
        spec = space.nested(width)
        task = ClientTask(0, 0, spec, spec, width, space.take(params, spec), {}, {}, config, seed=0)
        start = time.perf_counter()
        train(
            task,
            space=space,
            module_for=cache,
            dataset=data,
            indices=torch.arange(options.samples),
            objective=Plain(),
        )
        return time.perf_counter() - start

    for width in WIDTHS:  # warm-up: kernels are compiled for each shape once
        epoch(width)
    seconds: dict[float, list[float]] = {width: [] for width in WIDTHS}
    for _ in range(options.repeats):
        for width in WIDTHS:
            seconds[width].append(epoch(width))
    full = statistics.median(seconds[1.0])
    rows = [
        {
            "width": width,
            "ms_per_sample": 1e3 * statistics.median(seconds[width]) / options.samples,
            "time_ratio": statistics.median(seconds[width]) / full,
            "mac_ratio": space.macs(space.nested(width)) / space.macs(space.full()),
        }
        for width in WIDTHS
    ]
    for row in rows:
        print("  ".join(f"{key} {value:.4g}" for key, value in row.items()))
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "environment": environment()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
