"""Every registered model is trained for two rounds over clients of several widths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from widthwise.engine import Federation, run_federation
from widthwise.slicing import trace
from widthwise.studies import RunConfig, build
from widthwise.tasks import MODELS, ListedPartition, Signature, Task, TextSet, resolve_model

CAPACITIES = [0.25, 0.5, 1.0, 1.0]
OPTIONS: dict[str, dict[str, Any]] = {
    "cnn": {"scale": 0.125},
    "lstm": {"scale": 0.125},
    "resnet18": {"scale": 0.125, "norm": "batch"},
    "resnet20": {"scale": 0.5},
    "mobilenetv2": {"scale": 0.25, "norm": "batch"},
    "vit": {"dim": 32, "depth": 2, "heads": 2},
    "gpt": {"dim": 32, "depth": 2, "heads": 2},
    "lstm-lm": {"embedding": 16, "hidden": 32},
    "gru-lm": {"embedding": 16, "hidden": 32},
}
TEXT = Signature("text", (6,), 7)


def federation(model: str) -> Federation:
    """Return four clients of the digits with the model; a text model gets a text instead."""
    on_images = "image" in MODELS[model].value.kinds
    stand_in = {"name": "mlp", "hidden": [4]}
    config = RunConfig(
        task={
            "dataset": "digits",
            "model": {"name": model, **OPTIONS.get(model, {})} if on_images else stand_in,
            "clients": len(CAPACITIES),
            "partition": {"kind": "iid"},
            "limit": 160,
            "test_limit": 50,
        },
        capacity={"list": CAPACITIES},
        method={"name": "heterofl"},
        training={"rounds": 2, "cohort": 4, "local_epochs": 3, "batch_size": 16, "lr": 0.05},
        engine={"executor": "serial", "recalibration_samples": 64},
        seed=3,
    )
    fed = build(config)
    if on_images:
        return fed
    spec = resolve_model(model, TEXT, OPTIONS.get(model, {}))
    tokens = torch.arange(262, dtype=torch.uint8) % 7  # counts to seven again and again
    text = TextSet("counting", TEXT, tuple("0123456"), tokens, torch.arange(256))
    held = ListedPartition(torch.arange(0, 257, 64), torch.arange(256))
    task = Task("counting", text, text, held, np.array(CAPACITIES), (0.25, 0.5, 1.0), spec)
    space = trace(spec.build(fed.seed), spec.example_inputs(), freeze=spec.freeze)
    return replace(fed, task=task, space=space)


@pytest.mark.parametrize("model", MODELS.names())
def test_model_learns_in_two_rounds(model: str, tmp_path) -> None:
    result = run_federation(federation(model), tmp_path / "run")
    first, second = result.rounds["train_loss"]
    assert second < first
    assert np.isfinite(result.rounds["loss"]).all()
    assert set(result.result["width_accuracy"]) == {"0.25", "0.5", "1"}
    assert result.result["ever_covered"] == 1.0
