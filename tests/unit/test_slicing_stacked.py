"""Forwards of several sub-models at once are those of single ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from widthwise.slicing import WidthSpace, trace

K, B = 3, 5


class Net(nn.Module):
    """Two linear layers, the second without a bias, with something between them."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.between = nn.Linear(6, 8), nn.Linear(8, 3, bias=False), between

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.first(x.flatten(1))))


class Scaled(nn.Module):
    """A model with a parameter outside of a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.scale = nn.Linear(6, 3), nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x.flatten(1)) * self.scale


class Positions(nn.Module):
    """Scores for each position of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x)


WRITTEN_OUT: list[Callable[[Tensor], Tensor]] = [
    torch.relu,
    lambda x: functional.gelu(x).mul(2).add_(0.5),
    lambda x: x * torch.sigmoid(x),
    lambda x: functional.relu(x.view(-1, 2, 4)).reshape(x.shape[0], 8),
    lambda x: functional.dropout(x, 0.0),
]
LEFT_TO_VMAP: list[Callable[[Tensor], Tensor]] = [
    lambda x: functional.layer_norm(x, (8,)),
    lambda x: x * x.softmax(-1),
    lambda x: x - x.mean(1, keepdim=True),  # of one rank, but broadcast: the axis is kept
    lambda x: x + x.view(-1, 1, 8).sum(1),
    lambda x: x + torch.arange(x.shape[1]),
]


def both(space: WidthSpace, shape: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """Return scores and gradients of a stack, and those of each member alone."""
    module = space.module(space.nested(0.5))
    generator = torch.Generator().manual_seed(0)
    params = {
        name: torch.randn((K, *p.shape), generator=generator).requires_grad_()
        for name, p in module.named_parameters()
    }
    inputs = torch.randn((K, B, *shape), generator=generator)
    found = []
    for scores in (
        space.stacked(module)(params, inputs),
        torch.stack(
            [functional_call(module, {n: p[k] for n, p in params.items()}, (inputs[k],)) for k in range(K)]
        ),
    ):
        weighted = (scores * torch.arange(scores.numel()).view(scores.shape)).sum()
        found.append([scores, *torch.autograd.grad(weighted, list(params.values()))])
    return found[0], found[1]


@pytest.mark.parametrize("between", [*WRITTEN_OUT, *LEFT_TO_VMAP])
def test_stacked_forward_is_that_of_each_member(between: Callable[[Tensor], Tensor]) -> None:
    space = trace(Net(between), torch.randn(2, 6))
    assert (space.forward.stacked is not None) == (between in WRITTEN_OUT)
    for one, other in zip(*both(space, (6,)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_stacked_forward_flattens_images_without_their_client() -> None:
    space = trace(Net(torch.relu), torch.randn(2, 1, 2, 3))
    assert space.forward.stacked is not None
    for one, other in zip(*both(space, (1, 2, 3)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("model", "shape"), [(Scaled(), (6,)), (Positions(), (4, 3)), (nn.Conv1d(2, 3, 1), (2, 4))]
)
def test_only_linear_layers_may_hold_parameters_and_only_scores_come_out(
    model: nn.Module, shape: tuple[int, ...]
) -> None:
    assert trace(model, torch.randn(2, *shape)).forward.stacked is None
