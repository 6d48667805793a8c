"""Plain SGD whose steps linear layers take in the backward pass, against an optimizer's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from widthwise.core.descent import Descent, descending
from widthwise.core.params import Params
from widthwise.core.records import ClientReport, ClientTask, LocalConfig, Mask
from widthwise.core.seeds import SeedTree
from widthwise.slicing import WidthSpace, trace
from widthwise.training import OBJECTIVES, Local, LocalSetting, ModuleCache, epoch_batches, loop, train
from widthwise.training.plain import Plain

PLAIN = LocalConfig(2, 4, lr=0.1, momentum=0.0, weight_decay=0.01, clip_norm=None)


class Images:
    """Samples in memory."""

    def __init__(self) -> None:
        rng = torch.Generator().manual_seed(1)
        self.inputs, self.targets = torch.randn(10, 3, 8, 8, generator=rng), torch.arange(10) % 4

    def __len__(self) -> int:
        return 10

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], self.targets[indices]


@pytest.fixture(scope="module")
def space() -> WidthSpace:
    return trace(net(), torch.zeros(2, 3, 8, 8))


def net() -> nn.Module:
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(8 * 36, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), *wide)


def task_of(space: WidthSpace, width: float, config: LocalConfig) -> ClientTask:
    spec = space.nested(width)
    params = space.take({name: p.detach() for name, p in net().named_parameters()}, spec)
    return ClientTask(3, 5, spec, spec, 1.0, params, {}, {}, config, seed=7)


class Halved(Local):
    """Makes half of a step."""

    def correct_gradients(self) -> None:
        for _, p in self.setting.trainable():
            assert p.grad is not None
            p.grad.mul_(0.5)


class Own(Plain):
    """Plain SGD, but for its own working object."""

    def local(self, setting: LocalSetting) -> Local:
        return Halved(setting)


def run(space: WidthSpace, task: ClientTask, objective: str = "plain") -> ClientReport:
    return train(
        task,
        space=space,
        module_for=ModuleCache(space),
        dataset=Images(),
        indices=torch.arange(10),
        objective=Own() if objective == "own" else OBJECTIVES[objective].value(),
    )


def stepping(monkeypatch: pytest.MonkeyPatch, large: int = 1) -> list[tuple[int, Descent]]:
    """Let weights of this size take steps, and return where it is noted how many do."""
    marked: list[tuple[int, Descent]] = []

    def noted(weights: Iterable[Tensor], descent: Descent) -> Any:
        weights = list(weights)
        marked.append((len(weights), descent))
        return descending(weights, descent)

    monkeypatch.setattr(loop, "LARGE", large)
    monkeypatch.setattr(loop, "descending", noted)
    return marked


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("width", [0.5, 1.0])
def test_a_client_learns_what_an_optimizer_would_teach_it(
    space: WidthSpace, monkeypatch: pytest.MonkeyPatch, width: float, precision: str
) -> None:
    task = task_of(space, width, replace(PLAIN, precision=precision))
    usual = run(space, task)
    marked = stepping(monkeypatch)
    found = run(space, task)
    assert marked == [(2, Descent(0.1, 0.01))]
    # In bfloat16 the usual gradient of a weight is rounded to 8 bits, a step in the backward pass is not.
    close = 1e-5 if precision == "fp32" else 0.1
    for name, value in usual.delta.items():
        assert (found.delta[name] - value).norm() < close * value.norm()
    assert found.metrics["loss"] == pytest.approx(usual.metrics["loss"], rel=close)


def test_steps_are_those_written_by_hand(space: WidthSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    # w <- w - lr (g + d w) for every parameter and batch, in float64, on a module without dropout.
    task = task_of(space, 1.0, PLAIN)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.Tanh(), nn.Linear(16, 4))
    flat = trace(plain, torch.zeros(2, 3, 8, 8))
    params: Params = {name: p.detach().clone() for name, p in plain.named_parameters()}
    task = replace(task, spec=flat.full(), context_spec=flat.full(), params=params)
    marked = stepping(monkeypatch)
    found = run(flat, task)
    assert marked[0][0] == 2
    images, exact = Images(), plain.double()
    for epoch in range(2):
        order = SeedTree(7).at("shuffle", epoch).torch()
        for batch in epoch_batches(torch.arange(10), 4, order):
            exact.zero_grad()
            cross_entropy(exact(images.inputs[batch].double()), images.targets[batch]).backward()
            with torch.no_grad():
                for p in exact.parameters():
                    p -= 0.1 * (p.grad + 0.01 * p)
    for name, p in exact.named_parameters():
        torch.testing.assert_close(
            found.delta[name].double(), p.detach() - params[name], rtol=1e-4, atol=1e-6
        )


def with_mask(task: ClientTask, _: WidthSpace) -> ClientTask:
    kept = {"3.weight": torch.ones(task.params["3.weight"].shape, dtype=torch.bool)}
    spec = replace(task.spec, mask=Mask(kept, {"3.weight": 0.0}))
    return replace(task, spec=spec, context_spec=spec)


def settings(**changes: Any) -> Callable[[ClientTask, WidthSpace], ClientTask]:
    return lambda task, _: replace(task, config=replace(task.config, **changes))


@pytest.mark.parametrize(
    ("change", "objective", "large"),
    [
        (settings(momentum=0.9), "plain", 1),
        (settings(clip_norm=1.0), "plain", 1),
        (with_mask, "plain", 1),
        (settings(), "proximal", 1),
        (settings(), "distillation", 1),
        (settings(), "own", 1),
        (settings(), "plain", 10**6),
    ],
)
def test_the_optimizer_makes_the_steps_where_gradients_are_asked_for(
    space: WidthSpace,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[ClientTask, WidthSpace], ClientTask],
    objective: str,
    large: int,
) -> None:
    marked = stepping(monkeypatch, large)
    run(space, change(task_of(space, 1.0, PLAIN), space), objective)
    assert [count for count, _ in marked] == [0]
