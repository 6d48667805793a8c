"""Forwards that remember, draw, freeze or write: what tracing makes of them, and that it leaves no trace."""

from __future__ import annotations

import random
from collections import OrderedDict
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

    with pytest.raises(TraceError, match=r"differs from the model itself in training .* in a second output"):
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
    (net(lambda m, h: torch.nn.functional.dropout(h, 0.5, m.training, inplace=True)), {"first": 8}),
    (net(lambda m, h: torch.native_dropout(h, 0.5, m.training)[0]), {"first": 8}),
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


def counting(m: Any, x: Tensor) -> Tensor:
    if m.training:
        m.calls += 1
    return m.last(m.first(x)) * torch.where(m.calls < 5, 0.1, 1.0)


def test_a_counter_that_a_forward_reads_counts_in_sub_models_too() -> None:
    model = Net(counting, first=nn.Linear(4, 8), last=nn.Linear(8, 3))
    model.register_buffer("calls", torch.tensor(0))
    space = trace(model, X)
    assert int(model.calls) == 0
    sub = space.extract(model, space.full())
    for call in range(1, 8):
        assert torch.equal(sub(X), model(X))
        assert int(sub.get_buffer("calls")) == int(model.calls) == call


def test_the_count_of_batches_of_a_batch_norm_is_left_to_the_model() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    space = trace(model, X)
    sub = space.extract(model, space.full())
    sub(X)
    assert int(sub.get_buffer("1.num_batches_tracked")) == 0


class Hidden(nn.Module):
    """An LSTM that goes on where the last batch ended."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.last = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)
        self.state: Any = None

    def forward(self, x: Tensor) -> Tensor:
        y, state = self.rnn(x[:, None], self.state)
        self.state = tuple(part.detach() for part in state)
        return self.last(y[:, -1])


def forgetful_count(m: Any, x: Tensor) -> Tensor:
    m.count = getattr(m, "count", 0) + 1
    return m.last(m.first(x)) * (1 if m.count % 2 else 2)


def one_alone(m: Any, x: Tensor) -> Tensor:
    h = m.first(x)
    return m.last(h.relu() if x.shape[0] > 1 else h - 1.0)  # which are never the same


REMEMBERED = [
    (Hidden(), "in a second output"),
    (Net(forgetful_count, first=nn.Linear(4, 8), last=nn.Linear(8, 3)), "in a second output"),
    (Net(one_alone, first=nn.Linear(4, 8), last=nn.Linear(8, 3)), "in evaluation on a batch of 1 samples"),
]


@pytest.mark.parametrize("number", range(len(REMEMBERED)))
def test_trace_refuses_what_a_slice_would_not_remember(number: int) -> None:
    model, message = REMEMBERED[number]
    with pytest.raises(TraceError, match=message):
        trace(model, X)


def test_a_batch_size_that_a_forward_returns_is_that_of_the_call() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, int]:
            return self.last(self.first(x)), x.shape[0]

    model = Counted()
    space = trace(model, X)
    assert space.extract(model, space.nested(0.5))(torch.randn(7, 4))[1] == 7


def test_trace_leaves_parameters_and_inputs_alone_that_a_forward_writes_into() -> None:
    def clamping(m: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            m.first.weight.clamp_(-0.01, 0.01)
        return m.last(m.first(x))

    model = Net(clamping, first=nn.Linear(4, 8), last=nn.Linear(8, 3))
    before = model.first.weight.clone()
    with pytest.raises(TraceError, match=r"writes into its parameter .first.weight. by aten.clamp_"):
        trace(model, X)
    assert torch.equal(model.first.weight, before)
    failing = Net(lambda m, x: m.first(x.add_(1)) + m.nothing, first=nn.Linear(4, 8))
    x = X.clone()
    with pytest.raises(TraceError, match=r"fails on the example inputs at .* has no attribute 'nothing'"):
        trace(failing, x)
    assert torch.equal(x, X)


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    model[0].weight.register_hook(lambda grad: grad * 0)
    return model


def hooked_module() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    model[1].register_full_backward_hook(lambda *given: None)
    return model


def compiled() -> nn.Module:
    return torch.compile(nn.Linear(4, 3), backend="eager")  # type: ignore[return-value]


UNFIT: list[tuple[Callable[[], nn.Module], str]] = [
    (hooked, "the parameter '0.weight' has a hook on its gradient"),
    (hooked_module, "module '1' has a hook on its backward pass"),
    (lambda: nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 3)), "the parameter '0.weight' has no shape yet"),
    (lambda: nn.Linear(4, 3, dtype=torch.complex64), "the parameter 'weight' is complex"),
    (lambda: nn.DataParallel(nn.Linear(4, 3)), r"wrapped in DataParallel, .* Pass model\.module"),
    (lambda: nn.Sequential(OrderedDict([("class", nn.Linear(4, 3))])), "module 'class' is named as a word"),
    (compiled, r"wrapped in OptimizedModule, .* Pass model\._orig_mod"),
]


@pytest.mark.parametrize(("make", "message"), UNFIT)
def test_trace_refuses_what_a_sub_model_cannot_take_over(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        trace(make(), X)


def test_trace_follows_hundreds_of_residual_layers() -> None:
    layers = {f"l{i}": nn.Linear(6, 6) for i in range(600)}

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.first(x)
        for name in layers:
            h = h + getattr(m, name)(h).tanh() / 600
        return m.last(h)

    model = Net(forward, first=nn.Linear(4, 6), last=nn.Linear(6, 3), **layers)
    assert {group.name: group.size for group in trace(model, X, check=False).groups} == {"first": 6}


def test_gradients_that_are_zero_but_for_rounding_are_no_difference() -> None:
    """The bias of keys adds the same to all scores of a query, which a softmax takes out."""

    def attention(m: Any, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (2, 16)).transpose(1, 2) for layer in (m.q, m.k, m.v))
        return m.out(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)) * 100

    layers = {name: nn.Linear(8, 32) for name in ("q", "k", "v")} | {"out": nn.Linear(32, 3)}
    for seed in range(5):
        torch.manual_seed(seed)
        assert trace(Net(attention, **layers), 10 * torch.randn(2, 30, 8)).groups


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
