"""The table of rules: what pointwise means, and how a user adds a rule of his own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import widthwise as ww
from widthwise.core.errors import TraceError
from widthwise.slicing.rules import RULES, Call, Labels
from widthwise.slicing.rules.base import find
from widthwise.slicing.rules.elementwise import elementwise

#: Random operations: two calls differ. They are in the cases of the equivalence tests.
RANDOM = {
    *(
        "bernoulli",
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "normal",
        "poisson",
        "random",
        "uniform",
    ),
    *("alpha_dropout", "dropout", "feature_alpha_dropout", "feature_dropout", "native_dropout"),
    *("rand_like", "randint_like", "randn_like", "rrelu", "uniform"),
}
#: Tagged as pointwise too, but it reads a number, which tracing refuses.
NUMBERS = {"equal"}


def pointwise() -> list[str]:
    """Return the operations of torch to which the rule of pointwise operations applies."""
    names = {
        name.removeprefix("aten::").partition(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
    }
    known = (name for name in names if name == name.rstrip("_") and hasattr(torch.ops.aten, name))
    return sorted(name for name in known if find(f"aten::{name}") is elementwise)


def arguments(schema: Any, dtype: torch.dtype, number: float) -> dict[str, Any]:
    """Return arguments for every tensor and number that an operation asks for."""
    rng = torch.Generator().manual_seed(0)
    found: dict[str, Any] = {}
    for argument in schema.arguments:
        kind = str(argument.type)
        if kind == "Tensor":
            x = torch.rand(3, 6, dtype=torch.float64, generator=rng)
            found[argument.name] = x > 0.5 if argument.name in ("mask", "condition") else x.to(dtype)
        elif argument.name == "min" or (
            kind in ("number", "float", "int") and not argument.has_default_value()
        ):
            found[argument.name] = number
    return found


def runs(name: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the overloads of an operation with arguments that they take."""
    packet = getattr(torch.ops.aten, name)
    for overload in (getattr(packet, overload) for overload in packet.overloads()):
        schema = overload._schema
        takes = [str(argument.type) for argument in schema.arguments]
        if schema.is_mutable or "Tensor" not in takes:
            continue
        for dtype, number in (
            (torch.float64, 0.5),
            (torch.float64, 2),
            (torch.int64, 2),
            (torch.complex128, 2),
        ):
            given = arguments(schema, dtype, number)
            try:
                value = overload(**given)
            except (RuntimeError, TypeError):
                continue  # not for this dtype
            if isinstance(value, (Tensor, tuple)):  # a list: the places where a condition holds
                yield overload, given
                break


@pytest.mark.parametrize("name", sorted(set(pointwise()) - RANDOM - NUMBERS))
def test_pointwise_operation_works_on_each_channel_alone(name: str) -> None:
    kept = [0, 2, 5]
    tried = list(runs(name))
    assert tried
    for overload, given in tried:
        whole = overload(**given)
        part = overload(**{k: v[:, kept] if isinstance(v, Tensor) else v for k, v in given.items()})
        pairs = zip(whole, part, strict=True) if isinstance(whole, tuple) else [(whole, part)]
        for one, other in pairs:
            # Not bit for bit: the tail of an axis that does not fill a vector is computed by other code.
            torch.testing.assert_close(one[:, kept], other, rtol=1e-12, atol=0, equal_nan=True)


# a rule of the user's own


@torch.library.custom_op("widthwise_tests::running_sum", mutates_args=())
def running_sum(x: Tensor) -> Tensor:
    """Return the sums over all earlier positions of axis 1."""
    return x.cumsum(1)


@running_sum.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    """Nothing is needed for the gradient."""


running_sum.register_autograd(lambda ctx, grad: grad.flip(1).cumsum(1).flip(1), setup_context=_setup)


class Scan(nn.Module):
    """An operation that torch does not have, between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(running_sum(self.first(x)))


def test_trace_refuses_an_operation_of_the_users_own_and_says_what_to_register() -> None:
    with pytest.raises(
        TraceError,
        match=r"widthwise_tests\.running_sum\.default at .*py:[0-9]+ takes \(batch, 4, 8\), but no rule "
        r"says .* name the module that makes these channels in freeze, or register a rule for "
        r"'widthwise_tests\.running_sum' \(widthwise\.rule\)",
    ):
        ww.trace(Scan(), torch.zeros(2, 4, 3))


@pytest.fixture
def table() -> Iterator[None]:
    """Take rules that a test registers out again."""
    before = dict(RULES)
    yield
    RULES.clear()
    RULES.update(before)


@pytest.mark.usefixtures("table")
def test_trace_follows_an_operation_of_the_users_own_by_a_rule() -> None:
    @ww.rule("widthwise_tests.running_sum")
    def scan(call: Call) -> Labels:
        x: Labels = call["x"]
        call.keep(x[1])
        return x

    model, x = Scan(), torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    space = ww.trace(model, x)
    assert {group.name: group.size for group in space.groups} == {"first": 8}
    sub = space.extract(model, space.nested(0.25))
    first, last = model.first.weight[:2], model.last.weight[:, :2]
    expected = (x @ first.T + model.first.bias[:2]).cumsum(1) @ last.T + model.last.bias
    torch.testing.assert_close(sub(x), expected)


def test_trace_follows_an_operation_of_the_users_own_that_works_on_no_parameters_axis() -> None:
    class Ahead(Scan):
        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(running_sum(x)))

    assert [group.size for group in ww.trace(Ahead(), torch.zeros(2, 4, 3)).groups] == [8]


def test_rule_refuses_an_operation_that_has_one() -> None:
    with pytest.raises(
        TraceError, match=r"'linear' has a rule already, but an operation has one\. Use another"
    ):
        ww.rule("linear")(elementwise)


@pytest.mark.usefixtures("table")
def test_rule_takes_names_of_aten_as_messages_print_them() -> None:
    ww.rule("aten.linalg_matrix_exp")(elementwise)
    assert find("aten::linalg_matrix_exp") is elementwise


@pytest.mark.parametrize("name", ["aminmaxx", "aten.aminmaxx", "aten.relu.default", "mylib.scan.default"])
def test_rule_refuses_what_no_operation_is_called(name: str) -> None:
    with pytest.raises(
        TraceError, match=rf"registered for '{name}', but no operation is called so\. Name one without"
    ):
        ww.rule(name)(elementwise)


@pytest.mark.usefixtures("table")
def test_trace_names_the_arguments_when_a_rule_asks_for_another() -> None:
    @ww.rule("widthwise_tests.running_sum")
    def scan(call: Call) -> Labels:
        x: Labels = call["self"]
        return x

    with pytest.raises(
        TraceError,
        match=r"rule of widthwise_tests\.running_sum\.default asks for the argument 'self', but it has x\.",
    ):
        ww.trace(Scan(), torch.zeros(2, 4, 3))
