"""Operations that are computed in another way than torch's own."""

from __future__ import annotations

import pytest
import torch

from widthwise.slicing.kernels import KERNELS, group_norm


def operands(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(3, 8, 5, 5, generator=rng).to(memory_format=torch.channels_last).to(dtype)
    return x.requires_grad_(), torch.rand(8, generator=rng), torch.randn(8, generator=rng)


def test_group_norm_in_float32_is_torchs_own() -> None:
    x, scale, shift = operands(torch.float32)
    assert torch.equal(
        group_norm(x, 4, scale, shift, 1e-5), torch.nn.functional.group_norm(x, 4, scale, shift)
    )


def test_group_norm_in_bfloat16_rounds_once_and_has_the_gradient_of_the_exact_one() -> None:
    x, scale, shift = operands(torch.bfloat16)
    found = group_norm(x, 4, scale, shift, 1e-5)
    exact = torch.nn.functional.group_norm(x.double(), 4, scale.double(), shift.double())
    assert found.dtype is torch.bfloat16
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found.double(), exact, rtol=2**-8, atol=1e-6)  # half a unit in the last place
    weights = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    (own,) = torch.autograd.grad((found.float() * weights).sum(), x)
    (other,) = torch.autograd.grad((exact * weights.bfloat16()).sum(), x)
    torch.testing.assert_close(own.double(), other.double(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("op", KERNELS)
def test_kernels_stand_for_operations_of_torch(op: str) -> None:
    space, kind, overload = op.split(".")
    assert getattr(getattr(getattr(torch.ops, space), kind), overload)
