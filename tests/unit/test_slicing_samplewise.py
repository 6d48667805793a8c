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
    lambda x: x + torch.randn(x.shape[0], 8),
    lambda x: x + functional.dropout(torch.ones(8), 0.5, training=True),
    lambda x: x / len(x),
    lambda x: x * torch.full((8,), x.shape[0]),
    lambda x: x * torch.ones(x.shape[0], 8).sum(0),
    lambda x: x * (x[:, :1] - x[:, 0]).mean(1, keepdim=True),
    lambda x: x * functional.linear(x, x).mean(1, keepdim=True),
    lambda x: x * x[:, :1].expand(-1, x.shape[0]).sum(1, keepdim=True),
    lambda x: torch.cat([x, -x]).view(x.shape[0], 16)[:, :8],
    lambda x: functional.scaled_dot_product_attention(x, x, x),
    lambda x: functional.embedding(torch.zeros(x.shape[0], dtype=torch.long), x),
    lambda x: (x.t() @ x) @ x.t() @ torch.ones(1, 1) if x.dim() > 2 else (x @ x.t()) @ x,
]


@pytest.mark.parametrize("number", range(len(ALONE)))
def test_samplewise_where_rows_stay_apart(number: int) -> None:
    assert trace(Net(ALONE[number]), torch.randn(2, 6)).samplewise


@pytest.mark.parametrize("number", range(len(TOGETHER)))
def test_not_samplewise_where_rows_meet_or_chance_decides(number: int) -> None:
    assert not trace(Net(TOGETHER[number]), torch.randn(2, 6), check=False).samplewise


@pytest.mark.parametrize(
    ("options", "apart"), [({}, True), ({"padding_idx": 0}, False), ({"scale_grad_by_freq": True}, False)]
)
def test_samplewise_with_embeddings_whose_gradients_vmap_keeps_apart(
    options: dict[str, Any], apart: bool
) -> None:
    model = nn.Sequential(nn.Embedding(5, 8, **options), nn.Flatten(), nn.Linear(24, 5))
    assert trace(model, torch.zeros(2, 3, dtype=torch.long)).samplewise is apart


class ChannelsLast(nn.Module):
    """Asks for a layout of images."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x.contiguous(memory_format=torch.channels_last).flatten(1))


def test_not_samplewise_with_a_layout_that_vmap_refuses() -> None:
    assert not trace(ChannelsLast(), torch.zeros(2, 3, 2, 2)).samplewise


def images(*layers: Any) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))


def test_not_samplewise_with_operations_that_gain_nothing_from_being_batched() -> None:
    model = images(nn.Conv2d(3, 4, 3))
    model(torch.zeros(2, 3, 6, 6))
    assert not trace(model, torch.zeros(2, 3, 6, 6)).samplewise
