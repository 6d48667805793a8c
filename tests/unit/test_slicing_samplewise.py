"""Which forwards treat each sample on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from widthwise.slicing import trace


class Net(nn.Module):
    """Two linear layers with something between them."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.between = nn.Linear(6, 8), nn.Linear(8, 3), between

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.first(x)))


def blocks(x: Tensor) -> Tensor:
    return x.view(-1, 2, 4).transpose(1, 2).flatten(1)


ALONE: list[Callable[[Tensor], Tensor]] = [
    torch.relu,
    lambda x: functional.layer_norm(x, (8,)),
    lambda x: functional.dropout(x, 0.0),
    lambda x: x * x.softmax(-1),
    lambda x: x - x.mean(1, keepdim=True),
    lambda x: torch.cat([x[:, :4], x[:, 4:]], dim=1),
    blocks,
]
TOGETHER: list[Callable[[Tensor], Tensor]] = [
    lambda x: x - x.mean(0),
    lambda x: x - x.mean(-2, keepdim=True),
    lambda x: x.softmax(0),
    lambda x: x.cumsum(0),
    lambda x: x + x.sum(),
    lambda x: x.flip(0),
    lambda x: functional.dropout(x, 0.5, training=True),
    lambda x: functional.dropout(x, 0.5, training=True, inplace=True),
    lambda x: x + torch.rand_like(x),
    lambda x: x + torch.empty_like(x).normal_(),
    lambda x: functional.batch_norm(x, None, None, training=True),
    lambda x: (x.t() @ x) @ x.t() @ torch.ones(1, 1) if x.dim() > 2 else (x @ x.t()) @ x,
]


@pytest.mark.parametrize("number", range(len(ALONE)))
def test_samplewise_where_rows_stay_apart(number: int) -> None:
    assert trace(Net(ALONE[number]), torch.randn(2, 6)).samplewise


@pytest.mark.parametrize("number", range(len(TOGETHER)))
def test_not_samplewise_where_rows_meet_or_chance_decides(number: int) -> None:
    assert not trace(Net(TOGETHER[number]), torch.randn(2, 6), check=False).samplewise


def images(*layers: Any) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))


def test_not_samplewise_with_operations_that_gain_nothing_from_being_batched() -> None:
    model = images(nn.Conv2d(3, 4, 3))
    model(torch.zeros(2, 3, 6, 6))
    assert not trace(model, torch.zeros(2, 3, 6, 6)).samplewise
