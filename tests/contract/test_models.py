"""Every registered model builds, is a function of the seed, and learns."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

from widthwise.tasks import MODELS, Signature, resolve_model
from widthwise.tasks.model import ModelSpec

SIGNATURES = {
    "image": Signature("image", (3, 12, 12), 5),
    "text": Signature("text", (9,), 11),
    "features": Signature("features", (6,), 4),
}
#: Options that make a large model small enough for a test.
SMALL: dict[str, dict[str, object]] = {
    "resnet18": {"scale": 0.125},
    "resnet20": {"scale": 0.5},
    "mobilenetv2": {"scale": 0.25},
    "vit": {"dim": 16, "depth": 2, "heads": 2},
    "gpt": {"dim": 16, "depth": 2, "heads": 2},
    "lstm-lm": {"embedding": 8, "hidden": 16},
    "gru-lm": {"embedding": 8, "hidden": 16},
}
CASES = [
    pytest.param(entry.name, kind, {**SMALL.get(entry.name, {}), **norm}, id=f"{entry.name}-{kind}-{norm}")
    for entry in MODELS
    for kind in entry.value.kinds
    for norm in (
        [{"norm": norm} for norm in ("group", "batch", "none")]
        if "norm" in entry.value.model_fields
        else [{}]
    )
]


def spec_of(name: str, kind: str, options: dict[str, object]) -> ModelSpec:
    return resolve_model(name, SIGNATURES[kind], options)


@pytest.mark.parametrize(("name", "kind", "options"), CASES)
def test_model_gives_one_logit_for_each_class(name: str, kind: str, options: dict[str, object]) -> None:
    spec = spec_of(name, kind, options)
    assert spec.build(1)(spec.example_inputs(3)).shape == (3, spec.signature.num_classes)


@pytest.mark.parametrize(("name", "kind", "options"), CASES)
def test_model_depends_on_seed_and_leaves_global_generator(
    name: str, kind: str, options: dict[str, object]
) -> None:
    spec = spec_of(name, kind, options)
    before = torch.get_rng_state()
    one, again, other = (pickle.loads(pickle.dumps(spec)).build(seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize(("name", "kind", "options"), CASES)
def test_model_lowers_its_loss_in_one_step(name: str, kind: str, options: dict[str, object]) -> None:
    spec = spec_of(name, kind, options)
    module, generator = spec.build(1), torch.Generator().manual_seed(0)
    inputs = (
        torch.randint(spec.signature.num_classes, (8, *spec.signature.shape), generator=generator)
        if kind == "text"
        else torch.randn(8, *spec.signature.shape, generator=generator)
    )
    targets = torch.arange(8) % spec.signature.num_classes
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=0.01), []
    for _ in range(2):
        loss = nn.functional.cross_entropy(module(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[1] < losses[0]


@pytest.mark.parametrize(("name", "kind", "options"), CASES)
def test_model_freezes_modules_that_it_has(name: str, kind: str, options: dict[str, object]) -> None:
    spec = spec_of(name, kind, options)
    assert set(spec.freeze) <= {key for key, _ in spec.build(1).named_modules()}
