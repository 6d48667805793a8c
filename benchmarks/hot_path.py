"""What parts of a training step gain, as ratios of two things timed in turn (CPU seconds, one thread).

* Stacks: clients of one shape trained together against one after the other, per client.
* Group norm in bfloat16 and max pooling: ours against torch's own kernel, forward and backward.
* Dropout; and a large linear layer's step of plain SGD, taken in the backward pass against the optimizer's.
* A batch size that was not met before against the same one later: what compiling its convolutions costs.

    python -m benchmarks.hot_path [--out FILE.json]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from widthwise.core.descent import Descent, descending
from widthwise.core.records import ClientTask, LocalConfig
from widthwise.slicing import WidthSpace, trace
from widthwise.slicing.kernels import dropout, group_norm, max_pool2d
from widthwise.slicing.linear import linear
from widthwise.tasks import Dataset, Signature, resolve_model
from widthwise.training import ModuleCache, train
from widthwise.training.plain import Plain
from widthwise.training.stacked import train_stack

from .common import Document, Row, grid, in_turn, main
from .synthetic import IMAGES, random_samples

SAMPLES, BATCH = 20, 10
STACKS = (1, 5, 25, 50, 100)
# Channels and sides of the paper's network at widths 1 and .25, and batch sizes that nothing else uses.
NORMS = ((64, 32), (128, 16), (256, 8), (16, 32), (32, 16), (64, 8))
SIZES = (31, 29, 23, 19, 17, 13, 11, 7, 5, 3)
MODELS: tuple[tuple[str, dict[str, Any], Signature], ...] = (
    ("mlp", {"hidden": (64,)}, Signature("features", (64,), 10)),
    ("gpt", {"dim": 32, "depth": 2}, Signature("text", (20,), 60)),
)


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Measure."""
    repeats = 1 if options.tiny else 9
    yield from _stacks(
        MODELS[:1] if options.tiny else MODELS, STACKS[:2] if options.tiny else STACKS, repeats
    )
    yield from _norms(NORMS[-1:] if options.tiny else NORMS, repeats)
    yield _pooling(repeats)
    yield _dropping(repeats)
    yield from (_stepping(repeats, precision) for precision in ("fp32", "bf16"))
    yield from _first_batches((0.25,) if options.tiny else (0.25, 1.0), SIZES[-2:] if options.tiny else SIZES)


def _stacks(models: Any, sizes: tuple[int, ...], repeats: int) -> Iterator[Row]:
    """Compare stacks of several sizes with clients alone, for matrix-product models."""
    for name, options, signature in models:
        dataset = random_samples(signature, 100 * SAMPLES)
        spec = resolve_model(name, signature, options)
        model = spec.build(0)
        space = trace(model, spec.example_inputs())
        alone, stack = _clients(space, model, dataset)
        ways = {"alone": alone} | {str(size): partial(stack, size) for size in sizes}
        seconds = {way: statistics.median(found) for way, found in in_turn(repeats, ways).items()}
        for size in sizes:
            gain = seconds["alone"] / (seconds[str(size)] / size)
            yield {"part": "stack", "model": name, "clients": size, "gain": gain}


def _clients(
    space: WidthSpace, model: nn.Module, dataset: Dataset
) -> tuple[Callable[[], object], Callable[[int], object]]:
    """Return how one client is trained alone, and how so many are in a stack."""
    params = {name: value.detach() for name, value in model.named_parameters()}
    config, full, cache = LocalConfig(1, BATCH, 0.1, 0.9, 1e-4, 10.0), space.full(), ModuleCache(space)
    tasks = [ClientTask(i, 0, full, full, 1.0, params, {}, {}, config, seed=i) for i in range(max(STACKS))]
    own = [torch.arange(SAMPLES * i, SAMPLES * (i + 1)) for i in range(max(STACKS))]
    given: dict[str, Any] = {"space": space, "module_for": cache, "dataset": dataset}

    def alone() -> object:
        return train(tasks[0], indices=own[0], objective=Plain(), **given)

    def stack(size: int) -> object:
        return train_stack(tasks[:size], indices=own[:size], **given)

    return alone, stack


def _norms(shapes: tuple[tuple[int, int], ...], repeats: int) -> Iterator[Row]:
    """Compare group norms in bfloat16."""
    for channels, side in shapes:
        x = _images(32, channels, side).bfloat16()
        given = (channels // 8, torch.ones(channels), torch.zeros(channels), 1e-5)
        ways = _steps(group_norm, nn.functional.group_norm, x, given, torch.randn_like(x))
        yield {"part": "group norm", "channels": channels, "side": side, "gain": _gain(repeats, ways)}


def _pooling(repeats: int) -> Row:
    """Compare max poolings, in float32, of the images that pfl's network pools."""
    grad = torch.randn(10, 64, 14, 14)  # in the order in which a linear layer returns it
    ways = _steps(max_pool2d, torch.ops.aten.max_pool2d.default, _images(10, 64, 28), ([2, 2], [2, 2]), grad)
    return {"part": "operation", "name": "max pooling, 64 x 28 x 28", "gain": _gain(repeats, ways)}


def _dropping(repeats: int) -> Row:
    """Compare dropouts of the images that pfl's network has pooled."""
    x = _images(10, 64, 14)
    ways = _steps(dropout, torch.ops.aten.dropout.default, x, (0.25, True), torch.randn_like(x))
    return {"part": "operation", "name": "dropout, 64 x 14 x 14", "gain": _gain(repeats, ways)}


def _stepping(repeats: int, precision: str) -> Row:
    """Compare steps of pfl's larger linear layer, as clients with batches of ten make them."""
    layer, x, grad = nn.Linear(3136, 512), torch.randn(10, 3136, requires_grad=True), torch.randn(10, 512)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-6, fused=True)

    def step(weights: tuple[Tensor, ...]) -> None:
        optimizer.zero_grad()
        with descending(weights, Descent(1e-6, 0.0)):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                y = linear(x, layer.weight, layer.bias)
            y.backward(grad.to(y.dtype))
        optimizer.step()

    ways = {"ours": partial(step, (layer.weight,)), "torch's": partial(step, ())}
    name = f"step of a linear layer, 3136 x 512, {precision}"
    return {"part": "operation", "name": name, "gain": _gain(repeats, ways)}


def _images(batch: int, channels: int, side: int) -> Tensor:
    return torch.randn(batch, channels, side, side).to(memory_format=torch.channels_last)


def _steps(
    ours: Callable[..., Tensor], its: Callable[..., Tensor], x: Tensor, given: Any, grad: Tensor
) -> dict[str, Callable[[], object]]:
    """Return both ways of an operation, forward and backward."""
    x.requires_grad_()

    def step(operation: Callable[..., Tensor]) -> object:
        return torch.autograd.grad(operation(x, *given), x, grad)

    return {"ours": partial(step, ours), "torch's": partial(step, its)}


def _gain(repeats: int, ways: dict[str, Callable[[], object]]) -> float:
    seconds = {way: statistics.median(found) for way, found in in_turn(repeats, ways).items()}
    return seconds["torch's"] / seconds["ours"]


def _first_batches(widths: tuple[float, ...], sizes: tuple[int, ...]) -> Iterator[Row]:
    """Compare the first step of each batch size with a later one, for the paper's network."""
    spec = resolve_model("cnn", IMAGES)
    model = spec.build(0)
    space = trace(model, spec.example_inputs(), check=False)
    for width in widths:
        module = space.extract(model, space.nested(width)).to(memory_format=torch.channels_last)

        def step(batch: int, module: nn.Module = module) -> float:
            start = time.process_time()
            module(torch.randn(batch, 3, 32, 32)).square().mean().backward()
            return time.process_time() - start

        step(32)
        step(32)
        ratios = [step(batch) / statistics.median(step(batch) for _ in range(3)) for batch in sizes]
        yield {"part": "batch size", "width": width, "first_to_later": statistics.median(ratios)}


def table(document: Document) -> str:
    """Return one table for each part."""
    stacks, norms, operations, batches = (
        [row for row in document["rows"] if row["part"] == part]
        for part in ("stack", "group norm", "operation", "batch size")
    )
    sizes = list(dict.fromkeys(row["clients"] for row in stacks))
    gains = {(row["model"], row["clients"]): f"{row['gain']:.1f}" for row in stacks}
    by_size = (
        (model, *(gains[model, size] for size in sizes))
        for model in dict.fromkeys(row["model"] for row in stacks)
    )
    return "\n\n".join(
        (
            grid(("gain of a stack, per client", *(f"{size} clients" for size in sizes)), by_size),
            grid(
                ("bfloat16 group norm", *(f"{r['channels']} x {r['side']} x {r['side']}" for r in norms)),
                [("time of torch's / of ours", *(f"{r['gain']:.1f}" for r in norms))],
            ),
            grid(
                ("other operations of pfl's network", *(r["name"] for r in operations)),
                [("time of torch's / of ours", *(f"{r['gain']:.1f}" for r in operations))],
            ),
            grid(
                ("a batch size met for the first time", *(f"width {r['width']:g}" for r in batches)),
                [
                    (
                        "time of the first step / of later ones",
                        *(f"{r['first_to_later']:.1f}" for r in batches),
                    )
                ],
            ),
        )
    )


if __name__ == "__main__":
    main(__doc__, rows, table)
