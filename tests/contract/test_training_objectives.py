"""What every registered objective promises, on models that the tracer cut."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widthwise.core.params import clone
from widthwise.core.records import ClientReport, ClientTask, LocalConfig
from widthwise.core.registry import Entry
from widthwise.slicing import WidthSpace, trace
from widthwise.training import OBJECTIVES, ModuleCache, Objective, TrainingConfig, count_holders, train

VARIANTS = [(entry, {}) for entry in OBJECTIVES] + [(OBJECTIVES["distillation"], {"draw": "step"})]
CAPACITIES = np.array([0.25, 0.5, 0.75, 1.0])

pytestmark = pytest.mark.parametrize(
    ("entry", "options"), VARIANTS, ids=[" ".join([e.name, *o.values()]) for e, o in VARIANTS]
)


class ConvNet(nn.Module):
    """Convolutions, batch norm, dropout, and a view instead of a flatten layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 4, 3, padding=1)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(4 * 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        x = torch.max_pool2d(torch.relu(self.deep(x)), 2)
        return self.head(self.drop(x.view(x.size(0), -1)))


class TextNet(nn.Module):
    """Embedding, LSTM, last step."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.lstm = nn.LSTM(4, 8, num_layers=2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(x))[0][:, -1])


class Data:
    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs
        self.targets = inputs.flatten(1).sum(1).gt(inputs.flatten(1).sum(1).median()).long()

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], self.targets[indices]


@cache
def traced(kind: str) -> tuple[WidthSpace, dict[str, Tensor], dict[str, Tensor], Data]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ConvNet() if kind == "conv" else TextNet()
        inputs = torch.randn(33, 1, 8, 8) if kind == "conv" else torch.randint(7, (33, 5))
    space = trace(model, inputs[:2])
    return space, clone(dict(model.named_parameters())), clone(dict(model.named_buffers())), Data(inputs)


@pytest.fixture(params=["conv", "lstm"])
def client(request: pytest.FixtureRequest) -> Callable[..., ClientReport]:
    """Return a function that trains one client: (objective, width, capacity, **changes) -> report."""
    space, params, buffers, data = traced(request.param)

    def go(objective: Objective, width: float, capacity: float = 1.0, **changes: object) -> ClientReport:
        spec = space.nested(width)
        context = space.nested(objective.context_width(width, capacity))
        config = {"local_epochs": 2, "batch_size": 8, "lr": 0.1, "momentum": 0.0, "weight_decay": 1e-4}
        states = (*objective.client_state, *objective.server_state)
        return train(
            ClientTask(
                client_id=2,
                round_index=0,
                spec=spec,
                context_spec=context,
                capacity=capacity,
                params=space.take(params, context),
                buffers=space.take(buffers, context),
                state={name: {n: torch.zeros(s) for n, s in space.shapes(spec).items()} for name in states},
                config=LocalConfig(**{**config, "clip_norm": 10.0, **changes}),  # type: ignore[arg-type]
                seed=11,
            ),
            space=space,
            module_for=ModuleCache(space),
            dataset=data,
            indices=torch.arange(33),
            objective=objective,
        )

    go.space, go.params = space, params  # type: ignore[attr-defined]
    return go


@pytest.mark.parametrize("width", [0.25, 0.6, 1.0])
def test_objective_reports_an_update_of_the_trained_slice(
    entry: Entry[type[Objective]], options: dict[str, str], client, width: float
) -> None:
    objective = entry.value(**options)
    report = client(objective, width)
    assert {n: tuple(v.shape) for n, v in report.delta.items()} == client.space.shapes(report.spec)
    assert report.spec == client.space.nested(width)
    assert report.num_steps == 2 * 4  # 33 = 8 + 8 + 8 + 9
    assert np.isfinite(report.metrics["loss"])
    assert all(value.any() for value in report.delta.values())
    assert set(report.state) == set(objective.client_state)
    for state in report.state.values():
        assert {n: tuple(v.shape) for n, v in state.items()} == client.space.shapes(report.spec)


def test_objective_lowers_its_loss(entry: Entry[type[Objective]], options: dict[str, str], client) -> None:
    objective = entry.value(**options)
    first = client(objective, 0.5, local_epochs=1, lr=1e-6).metrics["loss"]
    # The mean over ten epochs, most of it after the first, is below the loss at the start.
    assert client(objective, 0.5, local_epochs=10).metrics["loss"] < first


def test_objective_gives_the_same_bits_again(
    entry: Entry[type[Objective]], options: dict[str, str], client
) -> None:
    first, second = (client(entry.value(**options), 0.6) for _ in range(2))
    assert all(torch.equal(first.delta[name], second.delta[name]) for name in first.delta)
    assert first.metrics == second.metrics


def test_objective_updates_the_server_state_without_changing_its_input(
    entry: Entry[type[Objective]], options: dict[str, str], client
) -> None:
    objective, space = entry.value(**options), client.space
    server = {
        name: {n: torch.ones_like(v) for n, v in client.params.items()} for name in objective.server_state
    }
    report = client(objective, 0.5)
    holders = count_holders(lambda width: space.mask(space.nested(width)), CAPACITIES)
    fold = objective.server(space, server, holders)
    fold.add_(report)
    new = fold.finish()
    assert set(new) == set(objective.server_state)
    mask = space.mask(report.spec)
    for name, tensors in new.items():
        for n, value in tensors.items():
            assert torch.equal(server[name][n], torch.ones_like(value))
            assert torch.equal(value[~mask[n]], torch.ones_like(value)[~mask[n]])


def test_objective_accepts_plain_sgd_and_receives_at_least_what_it_trains(
    entry: Entry[type[Objective]], options: dict[str, str]
) -> None:
    objective = entry.value(**options)
    objective.check(TrainingConfig(momentum=0))
    for width, capacity in [(0.25, 0.25), (0.25, 1.0), (1.0, 0.5)]:
        assert width <= objective.context_width(width, capacity) <= max(width, capacity)
