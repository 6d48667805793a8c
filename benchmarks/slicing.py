"""How long does slicing take? Tracing of whole models, and extraction against copying.

Tracing is timed in CPU seconds of a warm process, with and without the self-check. Extraction of a
sub-model is a ratio: to clones of its tensors (nothing but the copies) and to a deepcopy of the module.

    python benchmarks/slicing.py [--json FILE]
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from widthwise.engine.environment import environment
from widthwise.slicing import trace
from widthwise.tasks import Signature, resolve_model


def models() -> Iterator[tuple[str, nn.Module, Tensor]]:
    """Yield the models, the small ones first."""
    images, text = Signature("image", (3, 32, 32), 10), Signature("text", (80,), 95)
    for name, signature, options in (
        ("resnet18", images, {}),
        ("mobilenetv2", images, {}),
        ("gpt", text, {"depth": 12}),
    ):
        spec = resolve_model(name, signature, options)
        title = name + "".join(f" {key} {value}" for key, value in options.items())
        yield title, spec.build(0), spec.example_inputs()
    from transformers import BertConfig, BertForSequenceClassification

    yield "BERT base (12 layers)", BertForSequenceClassification(BertConfig()), torch.ones(2, 32).long()


def cpu_seconds(function: Callable[[], Any]) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    trace(nn.Linear(2, 2), torch.zeros(2, 2))  # imports
    rows: list[dict[str, Any]] = []
    for name, model, example in models():
        checked = cpu_seconds(lambda model=model, example=example: trace(model, example))
        traced = cpu_seconds(lambda model=model, example=example: trace(model, example, check=False))
        space = trace(model, example, check=False)
        parameters = space.num_params(space.full())
        rows.append({"model": name, "parameters": parameters, "trace_s": traced, "with_check_s": checked})
        print(
            f"{name}: {parameters / 1e6:.1f} M parameters, traced in {traced:.2f} s, checked {checked:.2f} s"
        )
        for width in (0.25, 0.5, 1.0):
            spec = space.nested(width)
            sub = space.extract(model, spec)
            tensors = [*sub.parameters(), *sub.buffers()]
            calls = {
                "extract": lambda model=model, space=space, spec=spec: space.extract(model, spec),
                "clones": lambda tensors=tensors: [tensor.detach().clone() for tensor in tensors],
                "deepcopy": lambda sub=sub: copy.deepcopy(sub),
            }
            times: dict[str, list[float]] = {key: [] for key in calls}
            for _ in range(options.repeats):
                for key, call in calls.items():
                    start = time.perf_counter()
                    call()
                    times[key].append(time.perf_counter() - start)
            median = {key: statistics.median(values) for key, values in times.items()}
            row = {
                "width": width,
                "extract_ms": 1e3 * median["extract"],
                "to_clones": median["extract"] / median["clones"],
                "to_deepcopy": median["extract"] / median["deepcopy"],
            }
            rows[-1].setdefault("extraction", []).append(row)
            print(
                f"  width {width:g}: {row['extract_ms']:.1f} ms, {row['to_clones']:.2f} times the clones "
                f"of its tensors, {row['to_deepcopy']:.2f} times a deepcopy"
            )
    if options.json:
        options.json.write_text(json.dumps({"environment": environment(), "models": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
