"""How long does slicing take? Tracing of whole models, and extraction against copying.

Tracing is timed in CPU seconds of a warm process, with and without the self-check. Extraction of a
sub-model is a ratio: to clones of its tensors (nothing but the copies) and to a deepcopy of the module.

    python -m benchmarks.slicing [--out FILE.json]
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from widthwise.slicing import WidthSpace, trace
from widthwise.tasks import resolve_model

from .common import Document, Row, grid, in_turn, main
from .synthetic import IMAGES, TEXT

WIDTHS = (0.25, 0.5, 1.0)


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Measure."""
    trace(nn.Linear(2, 2), torch.zeros(2, 2))  # imports
    for name, model, example in _tiny() if options.tiny else _models():
        checked = _cpu_seconds(lambda model=model, example=example: trace(model, example))
        traced = _cpu_seconds(lambda model=model, example=example: trace(model, example, check=False))
        space = trace(model, example, check=False)
        row: Row = {
            "model": name,
            "parameters": space.num_params(space.full()),
            "trace_s": traced,
            "with_check_s": checked,
            "extract_ms": [],
            "to_deepcopy": [],
            "to_clones": [],
        }
        for width in WIDTHS:
            median = _copies(model, space, width, repeats=1 if options.tiny else 9)
            row["extract_ms"].append(1e3 * median["extract"])
            row["to_deepcopy"].append(median["extract"] / median["deepcopy"])
            row["to_clones"].append(median["extract"] / median["clones"])
        yield row


def _models() -> Iterator[tuple[str, nn.Module, Tensor]]:
    """Yield the models, the small ones first."""
    for name, signature, options in (
        ("resnet18", IMAGES, {}),
        ("mobilenetv2", IMAGES, {}),
        ("gpt", TEXT, {"depth": 12}),
    ):
        spec = resolve_model(name, signature, options)
        title = name + "".join(f", {key} {value}" for key, value in options.items())
        yield title, spec.build(0), spec.example_inputs()
    from transformers import BertConfig, BertForSequenceClassification

    yield "BERT base (transformers)", BertForSequenceClassification(BertConfig()), torch.ones(2, 32).long()


def _tiny() -> Iterator[tuple[str, nn.Module, Tensor]]:
    spec = resolve_model("mlp", IMAGES)
    yield "mlp", spec.build(0), spec.example_inputs()


def _cpu_seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def _copies(model: nn.Module, space: WidthSpace, width: float, repeats: int) -> dict[str, float]:
    """Return the median seconds of three ways to copy a sub-model."""
    spec = space.nested(width)
    sub = space.extract(model, spec)
    tensors = [*sub.parameters(), *sub.buffers()]
    ways = {
        "extract": lambda: space.extract(model, spec),
        "clones": lambda: [tensor.detach().clone() for tensor in tensors],
        "deepcopy": lambda: copy.deepcopy(sub),
    }
    return {name: statistics.median(found) for name, found in in_turn(repeats, ways).items()}


def table(document: Document) -> str:
    """Return a row for each model."""
    widths = " / ".join(f"{width:g}" for width in WIDTHS)
    header = (
        "model",
        "parameters",
        "trace, no check (s)",
        "with check (s)",
        f"extract {widths}: to a deepcopy",
        "to clones alone",
    )
    return grid(
        header,
        (
            (
                row["model"],
                f"{row['parameters'] / 1e6:.1f} M",
                f"{row['trace_s']:.2f}",
                f"{row['with_check_s']:.2f}",
                " / ".join(f"{ratio:.2f}" for ratio in row["to_deepcopy"]),
                " / ".join(f"{ratio:.1f}" for ratio in row["to_clones"]),
            )
            for row in document["rows"]
        ),
    )


if __name__ == "__main__":
    main(__doc__, rows, table)
