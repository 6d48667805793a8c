"""The self-check against wrong rules: whatever one rule gets wrong, ``trace`` must refuse the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from widthwise.core.errors import TraceError
from widthwise.slicing import WidthSpace, trace
from widthwise.slicing.axes import Algebra, Axis, concat, fixed_axis, free_axis, resolve
from widthwise.slicing.rules import RULES, Call, Labels, Result
from widthwise.slicing.rules.base import Rule


class Images(nn.Module):
    """Convolutions with norms, a residual connection, a softmax, a concatenation, a flattening."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 6, 1), nn.BatchNorm2d(6)
        self.inner, self.groups = nn.Conv2d(6, 6, 1), nn.GroupNorm(3, 6)
        self.deep, self.side = nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.Conv2d(6, 5, 1)
        self.hidden, self.head = nn.Linear(11 * 4, 7), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x)).relu()
        x = x + self.groups(self.inner(x)).sigmoid()
        x = x * x.softmax(1)
        x = torch.cat([self.deep(x), self.side(x)], dim=1)
        return self.head(self.hidden(x.flatten(1)).tanh())


class Sequences(nn.Module):
    """An embedding, attention, a gated layer, a layer norm, an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(7, 6), nn.LayerNorm(6)
        self.q, self.k, self.v, self.out = (nn.Linear(i, o) for i, o in ((6, 12), (6, 12), (6, 12), (12, 6)))
        self.gated, self.rnn = nn.Linear(6, 10), nn.LSTM(5, 4, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        q, k, v = (p(x).view(*x.shape[:2], 4, 3).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = (q @ k.transpose(2, 3)).softmax(-1) @ v
        x = self.norm(x + self.out(y.transpose(1, 2).flatten(2)))
        return self.head(self.rnn(functional.glu(self.gated(x)))[0])


class Pieces(nn.Module):
    """Two layers joined and taken apart again, and one channel picked out."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.pick = nn.Linear(3, 5), nn.Linear(3, 5), nn.Linear(3, 5)
        self.left, self.right = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        one, other = torch.cat([self.one(x), self.other(x)], dim=1).tanh().split(5, dim=1)
        return self.left(one) + self.right(other) * self.pick(x)[:, 2, None]


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "images": (Images, lambda: torch.randn(2, 2, 2, 2)),
    "sequences": (Sequences, lambda: torch.tensor([[0, 1, 2, 3, 4], [5, 6, 5, 4, 3]])),
    "pieces": (Pieces, lambda: torch.randn(2, 3)),
}


def made(net: str) -> tuple[nn.Module, Tensor]:
    build, example = NETS[net]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build(), example()


UNIFY = Algebra.unify


class Forgetful:
    """Unification that leaves out one of so many calls that rules make for each program."""

    def __init__(self, forgotten: int | None = None, calls: int = 1) -> None:
        self.forgotten, self.of, self.calls, self.depth = forgotten, calls, 0, 0

    def unify(self, algebra: Algebra, one: Axis, other: Axis) -> None:
        outermost = self.depth == 0
        self.calls += outermost
        if outermost and self.forgotten == (self.calls - 1) % self.of:
            return
        self.depth += 1
        try:
            UNIFY(algebra, one, other)
        finally:
            self.depth -= 1


@pytest.mark.parametrize("net", NETS)
def test_self_check_notices_every_coupling_that_a_rule_forgets(
    net: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, example = made(net)

    def traced(forgetful: Forgetful) -> WidthSpace:
        monkeypatch.setattr(Algebra, "unify", lambda *args: forgetful.unify(*args))
        return trace(model, example)

    faithful = Forgetful()
    space = traced(faithful)
    calls = faithful.calls // len(space.forward.programs)
    refused, unnoticed = 0, []
    for forgotten in range(calls):
        try:
            wrong = traced(Forgetful(forgotten, calls))
        except TraceError:
            refused += 1
        else:
            if wrong.parameters != space.parameters or wrong.buffers != space.buffers:
                unnoticed.append(repr(wrong))  # else another call says the same
    assert not unnoticed
    assert refused > calls / 3  # these are not all the same by accident


# Wrong rules. Each is given the right one too.


def labels(right: Rule, call: Call) -> Labels:
    """Return what the right rule says of an operation with one value."""
    found = right(call)
    assert isinstance(found, tuple)
    return found


def joins_in_the_other_order(right: Rule, call: Call) -> Result:
    first, joined, *rest = labels(right, call)
    return (first, concat(resolve(joined)[0].parts[::-1]), *rest)


def flattens_positions_first(right: Rule, call: Call) -> Result:
    batch, joined = labels(right, call)
    return batch, joined[::-1]


def exchanges_pieces(right: Rule, call: Call) -> Result:
    return right(call)[::-1]


def marks_no_statistic(right: Rule, call: Call) -> Result:
    found = right(call)
    call.mixed.clear()
    return found


def marks_another_axis(right: Rule, call: Call) -> Result:
    found = labels(right, call)
    call.mixed[:] = [found[-1]]
    return found


def lets_no_size_follow(right: Rule, call: Call) -> Result:
    found = right(call)
    call.edits.clear()
    return found


def picks_without_keeping(right: Rule, call: Call) -> Result:
    return (call["self"][0],)


def cuts_the_vocabulary(right: Rule, call: Call) -> Result:
    return (*call["indices"], call["weight"][1])


def interleaves_the_halves(right: Rule, call: Call) -> Result:
    *axes, whole = call["self"]
    half = free_axis(call.shape[-1])
    call.unify(whole, (*half, *fixed_axis(2)))
    return (*axes, half)


def puts_gates_inside_units(right: Rule, call: Call) -> Result:
    x, (hidden, cell) = call["input"], call["hx"]
    call.unify(hidden[-1], cell[-1])
    rows = (*cell[-1], *fixed_axis(4))
    for param, columns in zip(call["params"], (x[-1], hidden[-1], None, None), strict=True):
        call.unify(rows, param[0])
        if columns is not None:
            call.unify(columns, param[1])
    return [(*x[:-1], hidden[-1]), hidden, cell]


MUTATIONS = [
    ("images", "cat", joins_in_the_other_order),
    ("images", "flatten", flattens_positions_first),
    ("images", "softmax", marks_another_axis),
    ("images", "softmax", marks_no_statistic),
    ("images", "group_norm", lets_no_size_follow),
    ("sequences", "glu", interleaves_the_halves),
    ("sequences", "lstm", puts_gates_inside_units),
    ("sequences", "layer_norm", marks_no_statistic),
    ("sequences", "view", lets_no_size_follow),
    ("sequences", "embedding", cuts_the_vocabulary),
    ("pieces", "select", picks_without_keeping),
    ("pieces", "cat", joins_in_the_other_order),
    ("pieces", "split", exchanges_pieces),
]


@pytest.mark.parametrize(("net", "op", "wrong"), MUTATIONS)
def test_self_check_notices_a_wrong_rule(
    net: str, op: str, wrong: Callable[[Rule, Call], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, example = made(net)
    trace(model, example)  # with the right rule there is nothing to notice
    monkeypatch.setitem(RULES, op, partial(wrong, RULES[op]))
    with pytest.raises(TraceError, match=r"rule of an operation is wrong|its rule expects"):
        trace(model, example)
