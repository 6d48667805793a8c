"""Forwards that remember, draw, freeze or write: what tracing makes of them, and that it leaves no trace."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widthwise.core.errors import TraceError
from widthwise.core.records import SliceSpec
from widthwise.slicing import trace
from widthwise.slicing.rules import RULES
from widthwise.slicing.rules.base import TAGS

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """Named layers, and a forward that is a function of them."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def net(between: Callable[[Any, Tensor], Tensor]) -> Net:
    """Two linear layers with something between them."""
    return Net(lambda m, x: m.last(between(m, m.first(x))), first=nn.Linear(4, 8), last=nn.Linear(8, 3))


@pytest.fixture
def broken() -> Iterator[None]:
    """Put the rules back that a test breaks."""
    rules, tags = dict(RULES), dict(TAGS)
    yield
    RULES.update(rules)
    TAGS.update(tags)


class Cache(nn.Module):
    """Positions are made in the first forward, and kept."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)
        self.positions: Tensor | None = None
        self.by_length: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if self.positions is None:
            self.positions = torch.linspace(0, 1, 4).sin()
        if x.shape[1] not in self.by_length:
            self.by_length[x.shape[1]] = torch.linspace(1, 2, x.shape[1])
        return self.last(self.first(x * self.by_length[x.shape[1]] + self.positions).relu())


def test_trace_leaves_no_trace_in_what_a_forward_remembers() -> None:
    model = Cache()
    space = trace(model, X)
    assert model.positions is None
    assert model.by_length == {}
    expected = model(X)
    assert type(expected) is Tensor
    assert torch.equal(space.extract(model, space.full())(X), expected)
    again = trace(model, X)  # with filled caches
    assert torch.equal(again.extract(model, again.full())(X), expected)


def test_trace_refuses_a_counter_that_outputs_depend_on() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)
            self.register_buffer("calls", torch.tensor(0))

        def forward(self, x: Tensor) -> Tensor:
            self.calls = self.calls + 1
            return self.last(self.first(x)) / self.calls

    with pytest.raises(TraceError, match=r"differs from the model itself in training .* of a second call"):
        trace(Counter(), X)


@pytest.mark.parametrize("draw", [random.random, np.random.rand, lambda: random.uniform(0, 1)])
def test_trace_refuses_layers_that_python_or_numpy_drop_at_random(draw: Callable[[], float]) -> None:
    model = net(lambda m, h: h if m.training and draw() < 0.1 else h.relu())
    for seed in range(3):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        with pytest.raises(TraceError, match="draws random numbers from Python or numpy"):
            trace(model, X)
        assert random.getstate() == random.Random(seed).getstate()


def test_trace_accepts_draws_that_decide_nothing() -> None:
    assert [g.size for g in trace(net(lambda m, h: h if random.random() < 0 else h.relu()), X).groups] == [8]


def test_modules_that_are_frozen_in_a_model_in_training_stay_frozen_in_its_slices() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3)).train()
    model[1].eval()
    model[2].eval()
    space = trace(model, X)
    assert [module.training for module in model] == [True, False, False, True]
    assert torch.equal(space.extract(model, space.full())(X), model(X))


@pytest.mark.usefixtures("broken")
def test_self_check_sees_what_only_training_runs() -> None:
    def passed_on(call: Any) -> Any:
        return call["self"]

    RULES["roll"] = passed_on  # wrong: with other channels the last one is not the last one
    model = net(lambda m, h: h + h.roll(1, -1) if m.training else h)
    with pytest.raises(TraceError, match="differs from the model whose other channels are zero"):
        trace(model, X)


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("unrelated", range(4))
def test_self_check_sees_a_forgotten_coupling_of_groups_of_two(unrelated: int) -> None:
    right = TAGS[torch.Tag.pointwise]

    def forgetful(call: Any) -> Any:
        forgets = call.schema.name == "aten::add" and call.shape[-1] == 2
        return tuple(next(call.tensors())) if forgets else right(call)

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        rest = sum(getattr(m, f"g{i}")(getattr(m, f"m{i}")(x).relu()) for i in range(unrelated))
        return m.f(h + m.b(x)) + rest

    layers: dict[str, nn.Module] = {"a": nn.Linear(4, 2), "b": nn.Linear(4, 2), "f": nn.Linear(2, 3)}
    for i in range(unrelated):
        layers |= {f"m{i}": nn.Linear(4, 2), f"g{i}": nn.Linear(2, 3)}
    TAGS[torch.Tag.pointwise] = forgetful
    with pytest.raises(TraceError, match="A rule of an operation is wrong"):
        trace(Net(forward, **layers), X)


def test_self_check_refuses_widths_that_return_no_numbers_and_a_floor_helps() -> None:
    model = net(lambda m, h: (h - h.mean(-1, keepdim=True)) / (h.std(-1, keepdim=True) + 1e-6))
    model.first, model.last = nn.Linear(4, 4), nn.Linear(4, 3)
    with pytest.raises(TraceError, match=r"at width 0\.25 returns numbers that are not finite"):
        trace(model, X)
    assert trace(model, X, floor=2).groups[0].floor == 2


def test_trace_follows_a_transformer_in_bfloat16() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.Sequential(nn.Linear(4, 32), nn.TransformerEncoder(layer, 2), nn.Linear(32, 3)).bfloat16()
    space = trace(model, torch.randn(2, 5, 4).bfloat16())
    assert {group.size for group in space.groups} == {32, 4, 64}


def states(m: Any, x: Tensor) -> Tensor:
    return m.last(m.rnn(x.unflatten(1, (2, 2)))[1].transpose(0, 1).flatten(1))


FOLLOWED: list[tuple[nn.Module, dict[str, int]]] = [
    (Net(states, rnn=nn.GRU(2, 6, 2, batch_first=True), last=nn.Linear(12, 3)), {"rnn": 6}),
    (Net(states, rnn=nn.RNN(2, 6, bidirectional=True, batch_first=True), last=nn.Linear(12, 3)), {"rnn": 6}),
    (net(lambda m, h: h + torch.empty_like(h).exponential_()), {"first": 8}),
    (net(lambda m, h: h), {"first": 8}),
    (
        Net(lambda m, x: m.last(m.first(x.sub_(0.5))), first=nn.Linear(4, 8), last=nn.Linear(8, 3)),
        {"first": 8},
    ),
]


@pytest.mark.parametrize("number", range(len(FOLLOWED)))
def test_trace_follows(number: int) -> None:
    model, groups = FOLLOWED[number]
    x = X.clone()
    assert {group.name: group.size for group in trace(model, x).groups} == groups
    assert torch.equal(x, X)


def test_trace_follows_an_embedding_with_sparse_gradients() -> None:
    model = nn.Sequential(nn.Embedding(9, 8, sparse=True), nn.Linear(8, 3))
    assert [group.size for group in trace(model, torch.tensor([[1, 2], [3, 4]])).groups] == [8]


def test_slices_are_the_same_in_whatever_order_their_groups_are_named() -> None:
    model = Net(
        lambda m, x: m.f(m.n(m.a(x)).relu()) + m.g(m.b(x)),
        **{"a": nn.Conv1d(2, 8, 1), "n": nn.GroupNorm(8, 8), "b": nn.Conv1d(2, 8, 1)},
        **{"f": nn.Conv1d(8, 3, 1), "g": nn.Conv1d(8, 3, 1)},
    )
    x = torch.randn(2, 2, 5)
    one = SliceSpec(0.5, {"b": range(2), "a": range(4)})
    expected = trace(model, x).extract(model, one)(x)
    space = trace(model, x)
    space.extract(model, SliceSpec(0.5, {"a": range(2), "b": range(4)}))
    assert torch.equal(space.extract(model, one)(x), expected)


def test_a_range_with_steps_keeps_what_it_names() -> None:
    model = net(lambda m, h: h.relu())
    space = trace(model, X)
    stepped, listed = SliceSpec(0.5, {"first": range(0, 8, 2)}), SliceSpec(0.5, {"first": (0, 2, 4, 6)})
    assert space.num_params(stepped) == space.num_params(listed) == 4 * 4 + 4 + 3 * 4 + 3
    assert space.num_params(space.full()) == sum(p.numel() for p in model.parameters())
    assert torch.equal(space.extract(model, stepped)(X), space.extract(model, listed)(X))
