"""What parts of a training step gain, as ratios of two things timed in turn (CPU seconds, one thread).

* Stacks: clients of one shape trained together against one after the other, per client.
* Group norm in bfloat16: ours against torch's own kernel, forward and backward.
* A batch size that was not met before against the same one later: what compiling its convolutions costs.

    python benchmarks/hot_path.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from widthwise.core.records import ClientTask, LocalConfig
from widthwise.engine.environment import environment
from widthwise.slicing import WidthSpace, trace
from widthwise.slicing.kernels import group_norm
from widthwise.tasks import ArraySet, Dataset, Signature, TextSet, resolve_model
from widthwise.training import ModuleCache, train
from widthwise.training.plain import Plain
from widthwise.training.stacked import train_stack

SAMPLES, BATCH = 20, 10
STACKS = (1, 5, 25, 50, 100)


def in_turn(repeats: int, **ways: Callable[[], object]) -> Mapping[str, float]:
    """Return the median CPU seconds of each way, all of them run in turn after a first run of each."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, way in ways.items():
            start = time.process_time()
            way()
            if repeat:
                seconds[name].append(time.process_time() - start)
    return {name: statistics.median(found) for name, found in seconds.items()}


def stacks(repeats: int) -> list[dict[str, Any]]:
    """Compare stacks of several sizes with clients alone, for matrix-product models."""
    rng, total = torch.Generator().manual_seed(0), 100 * SAMPLES
    rows = Signature("features", (64,), 10)
    values, targets = torch.randn(total, 64, generator=rng), torch.randint(0, 10, (total,), generator=rng)
    text = Signature("text", (20,), 60)
    tokens = torch.randint(0, 60, (total + 20,), generator=rng).to(torch.uint8)
    names = tuple(str(i) for i in range(60))
    cases: list[tuple[str, dict[str, Any], Dataset]] = [
        ("mlp", {"hidden": [64]}, ArraySet("x", rows, names[:10], values, targets, (0.0,) * 64, (1.0,) * 64)),
        ("gpt", {"dim": 32, "depth": 2}, TextSet("x", text, names, tokens, torch.arange(total))),
    ]
    found = []
    for name, options, dataset in cases:
        spec = resolve_model(name, dataset.signature, options)
        model = spec.build(0)
        space = trace(model, spec.example_inputs())
        ways = clients(space, model, dataset)
        seconds = in_turn(repeats, **ways)
        alone = seconds.pop("alone")
        for way, value in seconds.items():
            size = int(way.removeprefix("stack_"))
            found.append({"model": name, "clients": size, "gain": alone / (value / size)})
            print(
                f"{name}: a client in a stack of {size} costs 1/{found[-1]['gain']:.1f} of one alone",
                flush=True,
            )
    return found


def clients(space: WidthSpace, model: nn.Module, dataset: Dataset) -> dict[str, Callable[[], object]]:
    """Return ways to train: one client alone, and stacks."""
    params = {name: value.detach() for name, value in model.named_parameters()}
    config, full, cache = LocalConfig(1, BATCH, 0.1, 0.9, 1e-4, 10.0), space.full(), ModuleCache(space)
    tasks = [ClientTask(i, 0, full, full, 1.0, params, {}, {}, config, seed=i) for i in range(max(STACKS))]
    own = [torch.arange(SAMPLES * i, SAMPLES * (i + 1)) for i in range(max(STACKS))]

    def alone() -> object:
        return train(
            tasks[0], space=space, module_for=cache, dataset=dataset, indices=own[0], objective=Plain()
        )

    def stack(size: int) -> Callable[[], object]:
        return lambda: train_stack(
            tasks[:size], space=space, module_for=cache, dataset=dataset, indices=own[:size]
        )

    return {"alone": alone, **{f"stack_{size}": stack(size) for size in STACKS}}


def norms(repeats: int) -> list[dict[str, Any]]:
    """Compare group norms in bfloat16, in the shapes of the paper's network at widths 1 and .25."""
    found = []
    for channels, side in ((64, 32), (128, 16), (256, 8), (16, 32), (32, 16), (64, 8)):
        x = torch.randn(32, channels, side, side).to(memory_format=torch.channels_last).bfloat16()
        x.requires_grad_()
        scale, shift = torch.ones(channels), torch.zeros(channels)
        grad = torch.randn_like(x)

        def step(norm: Callable[..., Tensor], *given: Any, x: Tensor = x, grad: Tensor = grad) -> object:
            return torch.autograd.grad(norm(x, *given), x, grad)

        given = (channels // 8, scale, shift, 1e-5)
        seconds = in_turn(
            repeats,
            ours=lambda given=given, step=step: step(group_norm, *given),
            torchs=lambda given=given, step=step: step(torch.nn.functional.group_norm, *given),
        )
        found.append({"channels": channels, "side": side, "gain": seconds["torchs"] / seconds["ours"]})
        print(f"group norm, {channels} channels of {side} x {side}: gain {found[-1]['gain']:.1f}", flush=True)
    return found


def shapes() -> list[dict[str, Any]]:
    """Compare the first step of each batch size with a later one, for the paper's network."""
    spec = resolve_model("cnn", Signature("image", (3, 32, 32), 10))
    model = spec.build(0)
    space = trace(model, spec.example_inputs(), check=False)
    found = []
    for width in (0.25, 1.0):
        module = space.extract(model, space.nested(width)).to(memory_format=torch.channels_last)

        def step(batch: int, module: nn.Module = module) -> float:
            start = time.process_time()
            module(torch.randn(batch, 3, 32, 32)).square().mean().backward()
            return time.process_time() - start

        step(32)
        step(32)
        ratios = []
        for batch in (31, 29, 23, 19, 17, 13, 11, 7, 5, 3):
            first = step(batch)
            ratios.append(first / statistics.median(step(batch) for _ in range(3)))
        found.append({"width": width, "first_over_later": statistics.median(ratios)})
        print(
            f"width {width}: the first step of a batch size costs {statistics.median(ratios):.2f} later ones"
        )
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = {
        "environment": environment(),
        "stacks": stacks(options.repeats),
        "group_norm": norms(options.repeats),
        "shapes": shapes(),
    }
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
