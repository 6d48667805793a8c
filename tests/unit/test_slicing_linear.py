"""Linear layers whose weights take a step of plain SGD in the backward pass."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from widthwise.core.descent import Descent, descending, descent_of
from widthwise.slicing import trace
from widthwise.slicing.linear import FLOAT_ROWS, linear

STEP = Descent(lr=0.25, weight_decay=0.125)


def layer(shape: tuple[int, ...], outputs: int, bias: bool) -> tuple[nn.Linear, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    made = nn.Linear(shape[-1], outputs, bias=bias)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.randn(p.shape, generator=rng))
    x = torch.randn(shape, generator=rng).requires_grad_()
    return made, x, torch.randn((*shape[:-1], outputs), generator=rng)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("shape", "outputs"),
    [((1, 5), 3), ((10, 6), 4), ((2, 3, 7), 5), ((FLOAT_ROWS + 6, 5), 3), ((9, 1050), 1000)],
)
def test_a_step_in_the_backward_pass_is_the_closed_form(
    shape: tuple[int, ...], outputs: int, bias: bool, precision: str
) -> None:
    # y = x W' + b. With a gradient G of y, that of x is G W, that of b the sum of rows of G, and
    # W <- (1 - lr d) W - lr G' x.
    # In bfloat16 the operands are rounded first, so that only sums and results round after that.
    made, x, grad = layer(shape, outputs, bias)
    half = precision == "bf16"
    rounded = torch.bfloat16 if half else torch.float32
    w, rows, g = (
        v.detach().to(rounded).double() for v in (made.weight, x.flatten(0, -2), grad.flatten(0, -2))
    )
    before = made.weight.detach().double()
    with descending([made.weight], STEP):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            y = linear(x, made.weight, made.bias)
        y.backward(grad.to(y.dtype))
    assert y.dtype is rounded
    assert y.is_contiguous()
    added = made.bias.detach().to(rounded).double() if bias else 0.0
    close = {"rtol": 2**-7, "atol": 2**-6 * shape[-1] ** 0.5} if half else {"rtol": 1e-5, "atol": 1e-4}
    torch.testing.assert_close(y.double().flatten(0, -2), rows @ w.T + added, **close)
    torch.testing.assert_close(x.grad.double().flatten(0, -2), g @ w, **close)
    if bias:
        torch.testing.assert_close(made.bias.grad.double(), g.sum(0), rtol=1e-5, atol=1e-4)
    if half and len(rows) > FLOAT_ROWS:  # the product in bfloat16 is faster there, and the optimizer's
        torch.testing.assert_close(made.weight.grad.double(), g.T @ rows, **close)
        assert torch.equal(made.weight.detach().double(), before)
    else:
        assert made.weight.grad is None
        expected = (1 - 0.25 * 0.125) * before - 0.25 * g.T @ rows
        torch.testing.assert_close(made.weight.detach().double(), expected, rtol=1e-5, atol=1e-5)


def test_a_layer_is_torchs_own_where_its_weight_takes_no_step() -> None:
    made, x, grad = layer((10, 1050), 1000, True)
    weight = made.weight
    with descending([weight], STEP):
        assert descent_of(weight) == STEP
    assert descent_of(weight) is None
    ours, its = linear(x, weight, made.bias), made(x)
    assert torch.equal(ours, its)
    for one, other in zip(*(torch.autograd.grad(y, (x, weight), grad) for y in (ours, its)), strict=True):
        assert torch.equal(one, other)
    wide = nn.Linear(4, 3).double()
    with descending([wide.weight], STEP):
        linear(torch.ones(2, 4, dtype=torch.float64), wide.weight, wide.bias).sum().backward()
    assert wide.weight.grad is not None


@pytest.mark.parametrize("shape", [(5,), (0, 5), (4, 0, 5)])
def test_inputs_of_any_shape_are_taken(shape: tuple[int, ...]) -> None:
    made, x, grad = layer(shape, 3, True)
    expected = made(x)
    before, given = made.weight.detach().clone(), torch.autograd.grad(expected, (x, made.weight), grad)
    with descending([made.weight], STEP):
        found = linear(x, made.weight, made.bias)
        found.backward(grad)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(x.grad, given[0])
    torch.testing.assert_close(made.weight.detach(), (1 - 0.25 * 0.125) * before - 0.25 * given[1])


@pytest.mark.parametrize("outputs", [1, 2])
def test_outputs_may_be_changed_in_place(outputs: int) -> None:
    made, x, _ = layer((10, 2**20), outputs, False)
    expected = 2 * made(x).detach()
    with descending([made.weight], STEP):
        y = linear(x, made.weight).mul_(2.0)
        y.sum().backward()
    torch.testing.assert_close(y.detach(), expected, rtol=1e-3, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
@pytest.mark.parametrize("half", [False, True])
def test_what_torch_refuses_is_refused(dtype: torch.dtype, half: bool) -> None:
    made = nn.Linear(5, 3)
    wrong = torch.ones(2, 5, dtype=dtype)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=half)
    with descending([made.weight], STEP), autocast, pytest.raises(RuntimeError, match="dtype"):
        linear(wrong, made.weight, made.bias)


def test_weights_lose_their_step_when_training_fails() -> None:
    weight = nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(ZeroDivisionError), descending([weight], STEP):
        raise ZeroDivisionError
    assert descent_of(weight) is None


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.d, self.e, self.tied = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.tied.weight = self.e.weight
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(self.a(x))  # read twice
        x = self.b(x) + self.c.weight.sum()
        x = x + x @ self.c.weight.T  # not as a linear layer
        with torch.no_grad():
            x = x + self.d(x)  # not differentiated
        return self.out(self.tied(self.e(x)))


def test_only_weights_that_one_linear_layer_reads_once_take_steps() -> None:
    space = trace(Twice(), torch.randn(2, 6), check=False)
    assert space.linear_weights == {"b.weight", "out.weight"}
    images = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 3))
    assert trace(images, torch.randn(2, 1, 6, 6)).linear_weights == {"2.weight"}
