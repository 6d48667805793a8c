"""Every file format takes every registered model, and gives back what the sub-model computes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from widthwise.core.records import SliceSpec
from widthwise.ship import FORMATS
from widthwise.ship.compare import compare
from widthwise.ship.formats.format import Exportable
from widthwise.ship.passport import Passport, Scores, probed, stretches
from widthwise.slicing import trace
from widthwise.tasks import MODELS, Signature, resolve_model

SIGNATURES = {
    "image": Signature("image", (1, 8, 8), 5),
    "text": Signature("text", (6,), 7),
    "features": Signature("features", (6,), 4),
}
#: Options that make a large model small enough for a test.
SMALL: dict[str, dict[str, Any]] = {
    "cnn": {"scale": 0.125},
    "lstm": {"scale": 0.0625},
    "resnet18": {"scale": 0.0625, "norm": "batch"},
    "resnet20": {"scale": 0.25, "norm": "batch"},
    "mobilenetv2": {"scale": 0.125, "norm": "batch"},
    "vit": {"dim": 16, "depth": 1, "heads": 2},
    "gpt": {"dim": 16, "depth": 1, "heads": 2},
    "lstm-lm": {"embedding": 8, "hidden": 16},
    "gru-lm": {"embedding": 8, "hidden": 16},
}


class Drawn:
    """Random inputs of a signature."""

    def __init__(self, signature: Signature) -> None:
        self.signature, self.generator = signature, torch.Generator().manual_seed(0)

    def __len__(self) -> int:
        return 100

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        shape = (len(indices), *self.signature.shape)
        if self.signature.kind == "text":
            inputs = torch.randint(self.signature.num_classes, shape, generator=self.generator)
        else:
            inputs = torch.randn(shape, generator=self.generator)
        return inputs, torch.zeros(len(indices), dtype=torch.int64)


@cache  # a program is captured once for all formats, as in an export
def sub_model(model: str) -> Exportable:
    """Return a sub-model of width 0.5 that keeps the last channels of each group.

    Such a file can be read only with the kept channels that it notes.
    """
    signature = SIGNATURES[MODELS[model].value.kinds[0]]
    built = resolve_model(model, signature, SMALL.get(model, {}))
    full = built.build(3).eval()
    tracing = {"freeze": built.freeze, "align": 1, "floor": 1, "heads": "whole"}
    space = trace(full, built.example_inputs(), **tracing)
    half = space.nested(0.5)
    kept = {group.name: range(group.size - len(half.kept[group.name]), group.size) for group in space.groups}
    module = Scores(space.extract(full, SliceSpec(0.5, kept))).requires_grad_(False).eval()
    passport = Passport(
        version="0",
        method="heterofl",
        seed=3,
        config_hash="0",
        rounds=1,
        dataset="drawn",
        model=model,
        options=built.options.model_dump(mode="json"),
        signature=signature,
        tracing=tracing,
        width=0.5,
        kept={group: stretches(channels) for group, channels in kept.items()},
        masked=False,
        scores=tuple(map(tuple, probed(module, signature).tolist())),
    )
    return Exportable(module, built.example_inputs(), passport)


@pytest.mark.parametrize("model", [entry.name for entry in MODELS])
@pytest.mark.parametrize("name", FORMATS.names())
def test_format_gives_the_scores_of_the_sub_model(name: str, model: str, tmp_path: Path) -> None:
    exported, file_format = sub_model(model), FORMATS[name].value
    path = tmp_path / f"sub{file_format.suffix}"
    file_format.save(exported, path)
    samples = Drawn(exported.passport.signature)
    assert compare(name, file_format.reload(path, None), exported.module, samples) <= 1e-5
