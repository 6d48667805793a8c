"""Operations that are computed in another way than torch's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from widthwise.slicing import group_norm as compiled
from widthwise.slicing.kernels import KERNELS, dropout, group_norm, max_pool2d

aten = torch.ops.aten
LAST = torch.channels_last


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def operands(dtype: torch.dtype, *shape: int) -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    x = 3 + torch.randn(shape or (3, 8, 5, 5), generator=rng)
    scale, shift = torch.rand(x.shape[1], generator=rng), torch.randn(x.shape[1], generator=rng)
    x = x.to(dtype).contiguous(memory_format=LAST if x.dim() == 4 else torch.contiguous_format)
    return x.requires_grad_(), scale.requires_grad_(), shift.requires_grad_()


def test_group_norm_in_float32_is_torchs_own() -> None:
    x, scale, shift = operands(torch.float32)
    assert torch.equal(
        group_norm(x, 4, scale, shift, 1e-5), torch.nn.functional.group_norm(x, 4, scale, shift)
    )


@pytest.mark.parametrize(
    ("shape", "groups"),
    [((3, 8, 5, 5), 4), ((2, 8, 4, 6), 1), ((2, 6, 3, 3), 6), ((2, 64, 7, 1), 8), ((1, 40, 1, 1), 5)],
)
@pytest.mark.parametrize("eps", [1e-5, 0.5])
@pytest.mark.parametrize("order", ["channels last", "contiguous"])
def test_group_norm_in_bfloat16_rounds_once_and_has_the_gradients_of_the_exact_one(
    shape: tuple[int, ...], groups: int, eps: float, order: str
) -> None:
    x, scale, shift = operands(torch.bfloat16, *shape)
    if order == "contiguous":
        x = x.detach().contiguous().requires_grad_()
    found = group_norm(x, groups, scale, shift, eps)
    exact = torch.nn.functional.group_norm(x.double(), groups, scale.double(), shift.double(), eps)
    assert found.dtype is torch.bfloat16
    assert found.is_contiguous(memory_format=LAST if order == "channels last" else torch.contiguous_format)
    torch.testing.assert_close(found.double(), exact, rtol=2**-8, atol=1e-5)  # half a unit in the last place
    weights = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    own = torch.autograd.grad((found * weights).float().sum(), (x, scale, shift))
    other = torch.autograd.grad((exact * weights).sum(), (x, scale, shift))
    assert [one.dtype for one in own] == [torch.bfloat16, torch.float32, torch.float32]
    # That of x is the difference of larger numbers, and rounded to 8 bits.
    torch.testing.assert_close(own[0].double(), other[0].double(), rtol=2**-8, atol=0.005)
    torch.testing.assert_close(own[1:], other[1:], rtol=1e-4, atol=1e-4)


def test_group_norm_in_bfloat16_is_compiled_where_that_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    own = compiled.GroupNorm.apply
    monkeypatch.setattr(compiled.GroupNorm, "apply", lambda *args: used.append(1) or own(*args))
    x, scale, shift = operands(torch.bfloat16)
    group_norm(x, 4, scale, shift, 1e-5, True)
    group_norm(x.detach(), 4, torch.nn.Parameter(scale), shift)
    assert len(used) == 2
    group_norm(x.detach().contiguous(), 4, scale, shift, 1e-5)
    group_norm(x, 4, scale.bfloat16(), shift.bfloat16(), 1e-5)
    group_norm(x, 4)
    group_norm(x, 4, scale)
    group_norm(x.detach()[:, :, 0], 4, scale, shift)
    group_norm(x[:0], 4, scale, shift)
    torch.vmap(lambda one: group_norm(one, 4, scale, shift))(x.detach().unsqueeze(1))
    torch.vmap(lambda one: group_norm(x, 4, one, shift))(scale.detach().expand(2, 8))
    torch.set_num_threads(2)  # torch uses them, the loop does not
    group_norm(x, 4, scale, shift)
    assert len(used) == 2


@pytest.mark.parametrize(("groups", "channels"), [(4, 4), (3, 8)])
def test_group_norm_in_bfloat16_refuses_what_torch_refuses(groups: int, channels: int) -> None:
    x, scale, shift = operands(torch.bfloat16)
    with pytest.raises(RuntimeError):
        group_norm(x, groups, scale[:channels], shift[:channels], 1e-5)


@pytest.mark.parametrize("value", [2.5, 1e5])
def test_group_norm_in_bfloat16_of_equal_values_is_the_bias(value: float) -> None:
    x, scale, shift = operands(torch.bfloat16)
    x = torch.full_like(x, value).requires_grad_()
    found = group_norm(x, 4, scale, shift, 1e-5)
    assert torch.equal(found, shift.bfloat16().view(8, 1, 1).expand_as(x))
    of_x, of_scale = torch.autograd.grad(found.sum(), (x, scale))
    assert of_x.isfinite().all()
    assert torch.equal(of_scale, torch.zeros(8))


def test_group_norm_in_bfloat16_can_be_recorded_and_transformed() -> None:
    x, scale, shift = (one.detach() for one in operands(torch.bfloat16))
    other = torch.flip(x, [0])

    def norm(images: Tensor) -> Tensor:
        return group_norm(images, 4, scale, shift)

    found = make_fx(norm)(x)(other)
    torch.testing.assert_close(found.float(), norm(other).float(), rtol=2**-7, atol=1e-5)
    total = torch.func.grad(lambda factor: (norm(x) * factor).float().sum())(torch.ones(()))
    torch.testing.assert_close(total, norm(x).float().sum(), rtol=0.01, atol=0.5)


def test_max_pool_has_batches_of_gradients() -> None:
    x = operands(torch.float32, 2, 4, 6, 6)[0]
    (found,) = torch.autograd.grad(max_pool2d(x, [2, 2]), x, torch.ones(3, 2, 4, 3, 3), is_grads_batched=True)
    assert torch.equal(found.sum((1, 2, 3, 4)), torch.full((3,), 72.0))


def test_group_norm_in_bfloat16_has_no_wrong_second_gradient() -> None:
    x, scale, shift = operands(torch.bfloat16)
    found = group_norm(x, 4, scale, shift, 1e-5).float().square().sum()
    (gradient,) = torch.autograd.grad(found, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.float().square().sum().backward()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_group_norm_in_bfloat16_passes_on_what_is_not_finite(value: float) -> None:
    x, scale, shift = operands(torch.bfloat16)
    with torch.no_grad():
        x[0, 0, 0, 0] = value
    found = group_norm(x, 4, scale, shift, 1e-5)
    (gradient,) = torch.autograd.grad(found.float().sum(), x)
    for made in (found, gradient):
        assert made[0, :2].isnan().all()
        assert made[0, 2:].isfinite().all()
        assert made[1:].isfinite().all()


ELSEWHERE = """
import torch
from widthwise.slicing.group_norm import GroupNorm, _forward
assert _forward.stats.cache_path is None
x = torch.arange(8.0).bfloat16().view(1, 2, 2, 2).contiguous(memory_format=torch.channels_last)
print(GroupNorm.apply(x, 1, torch.ones(2), torch.zeros(2)).max().item())
"""


def test_group_norm_is_compiled_where_nothing_can_be_written() -> None:
    nowhere = {"NUMBA_CACHE_DIR": "", "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        env={**os.environ, **nowhere},
        capture_output=True,
        text=True,
        check=True,
    )
    # Mean 3.5 and variance 5.25: (7 - 3.5) / 2.291 = 1.5275, to 8 bits.
    assert float(done.stdout) == 1.53125


@pytest.mark.parametrize("window", [([2, 2], [2, 2]), ([3, 3], [2, 2], [1, 1])])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_max_pool_has_torchs_gradient_in_the_order_of_the_images(dtype: torch.dtype, window: Any) -> None:
    x = operands(dtype, 3, 8, 6, 6)[0]
    pooled, other = max_pool2d(x, *window), aten.max_pool2d.default(x, *window)
    assert torch.equal(pooled, other)
    weights = torch.randn(pooled.shape, generator=torch.Generator().manual_seed(1)).to(dtype)  # contiguous
    (own,), (its,) = (torch.autograd.grad(one, x, weights) for one in (pooled, other))
    torch.testing.assert_close(own, its)  # where windows overlap, gradients are added in another order
    assert own.is_contiguous(memory_format=LAST)
    with torch.no_grad():
        assert torch.equal(max_pool2d(x, *window), aten.max_pool2d.default(x, *window))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.999])
def test_dropout_drops_a_share_and_scales_the_rest(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = operands(dtype, 40, 25, 20, 20)[0]
    found = dropout(x, p, True)
    assert found.dtype is dtype
    assert found.is_contiguous(memory_format=LAST)
    kept = found != 0
    share = kept.double().mean().item()
    assert abs(share - (1 - p)) < 5 * (p * (1 - p) / x.numel()) ** 0.5
    torch.testing.assert_close(found[kept], (x / (1 - p))[kept])
    (gradient,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(gradient, kept / (1 - p), check_dtype=False, rtol=2**-8, atol=0)
    # Neighbours in memory share a random number of 64 bits: whether both are kept tells that they are apart.
    pairs = kept.permute(0, 2, 3, 1).reshape(-1, 2).all(1).double().mean().item()
    both = (1 - p) ** 2
    assert abs(pairs - both) < 5 * (both * (1 - both) / (x.numel() / 2)) ** 0.5


def test_dropout_follows_torchs_generator() -> None:
    x = torch.ones(3, 7)
    torch.manual_seed(1)
    one, other = dropout(x, 0.5, True), dropout(x, 0.5, True)
    torch.manual_seed(1)
    assert torch.equal(dropout(x, 0.5, True), one)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("p", "train", "value"), [(0.0, True, 1), (1.0, True, 0), (0.5, False, 1), (1e-12, True, 1)]
)
def test_dropout_has_limits(p: float, train: bool, value: int) -> None:
    for x in (torch.ones(500), torch.ones(5, 0), torch.ones(6, 4).t()[::2]):
        assert torch.equal(dropout(x, p, train), torch.full_like(x, value))


def test_dropout_is_torchs_own_where_it_is_recorded_or_transformed() -> None:
    x = torch.ones(2, 50)
    recorded = make_fx(lambda one: dropout(one, 0.5, True))(x)
    assert any("bernoulli" in str(node.target) for node in recorded.graph.nodes)
    rows = torch.vmap(lambda one: dropout(one, 0.5, True), randomness="different")(x)
    assert not torch.equal(*rows)


@pytest.mark.parametrize("op", KERNELS)
def test_kernels_stand_for_operations_of_torch(op: str) -> None:
    space, kind, overload = op.split(".")
    assert getattr(getattr(getattr(torch.ops, space), kind), overload)
