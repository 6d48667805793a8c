"""Every family of operations that has a rule, a few in one net: dense sub-models equal masked full models."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from widthwise.slicing import trace


class Images(nn.Module):
    """Padding, transposed and grouped convolutions, instance norm, resizing, pooling, axes moved about."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(2, 6, 3)
        self.norm, self.slope = nn.InstanceNorm2d(6, affine=True), nn.PReLU(6)
        self.grouped = nn.Conv2d(6, 12, 3, groups=3)
        self.gate = nn.Conv2d(12, 12, 1)
        self.bias = nn.Parameter(torch.rand(12, 1, 1))
        self.deep = nn.Conv3d(12, 5, (1, 2, 2))
        self.fc = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.slope(self.norm(self.up(functional.pad(x, (1, 1, 0, 1)))))
        h = self.grouped(functional.interpolate(h, scale_factor=2).flip(-1))
        h = h * self.gate(functional.adaptive_avg_pool2d(h, 1)).sigmoid() + self.bias.expand(-1, 1, 1)
        h = functional.max_pool2d(h, 2).movedim(1, -1).transpose(1, 3).permute(0, 1, 3, 2)
        h = torch.stack([h, h.roll(1, -1)], dim=2).unsqueeze(-1).squeeze(-1)
        h = functional.adaptive_max_pool3d(self.deep(h), 2)
        return self.fc(h.amax(dim=(2, 3)).max(dim=-1).values)


class Sequences(nn.Module):
    """Recurrent cells, gated units, pieces of axes, products written in four ways."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.gru, self.plain = nn.LSTMCell(4, 6), nn.GRUCell(6, 5), nn.RNNCell(5, 4)
        self.wide = nn.Linear(4, 12)
        self.down = nn.Parameter(torch.randn(6, 8) / 3)
        self.mix = nn.Parameter(torch.randn(8, 7) / 3)
        self.base = nn.Parameter(torch.randn(7))
        self.fc = nn.Linear(7 + 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h, _ = self.cell(x[:, 0])
        r = self.plain(self.gru(h))
        g = functional.glu(self.wide(x), dim=-1)
        one, two = (g @ self.down).split([3, 5], dim=-1)
        p = torch.cat([one.tanh(), two.relu()], dim=-1)
        first, second = (
            torch.addmm(self.base, p.flatten(0, 1), self.mix).unflatten(0, (-1, 4)).chunk(2, dim=1)
        )
        p = torch.bmm(first.transpose(1, 2), second).sum(dim=2) + x.new_ones(x.shape[0], 7)
        return self.fc(torch.cat([p, r], dim=1))


class Heads(nn.Module):
    """Two ways of writing attention, a token that is joined to the sequence, a square normalised by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.token = nn.Linear(4, 8), nn.Parameter(torch.randn(1, 1, 8))
        self.qkv, self.out = nn.Linear(8, 36), nn.Linear(12, 8)
        self.query, self.fc = nn.Linear(8, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.cat([self.token.expand(x.shape[0], -1, -1), self.embed(x)], dim=1)
        q, k, v = self.qkv(h).view(x.shape[0], -1, 3, 3, 4).permute(2, 0, 3, 1, 4).unbind(0)
        h = h + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        h = h / h.square().sum(dim=-1, keepdim=True).add(1e-3).sqrt()
        q = self.query(h).view(x.shape[0], -1, 3, 4).transpose(1, 2).reshape(x.shape[0] * 3, -1, 4)
        a = torch.bmm(q, q.transpose(1, 2)).softmax(dim=-1)
        return self.fc(
            torch.bmm(a, q).view(x.shape[0], 3, -1, 4).transpose(1, 2).reshape(x.shape[0], -1, 12)[:, 0]
        )


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], dict[str, int]]] = {
    # Grouped convolution: whole groups are cut, so that the 6 channels before it go in pairs.
    "images": (Images, (3, 2, 5, 5), {"up": 3, "deep": 5}),
    "sequences": (
        Sequences,
        (3, 4, 4),
        {"cell": 6, "gru": 5, "plain": 4, "wide": 6, "down": 3, "down.2": 5, "base": 7},
    ),
    "heads": (Heads, (3, 4, 4), {"token": 8, "qkv": 3, "query": 3}),
}


@pytest.mark.parametrize("name", CASES)
def test_sub_model_of_many_operations_equals_the_masked_full_model(name: str) -> None:
    build, shape, expected_groups = CASES[name]
    rng = torch.Generator().manual_seed(2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build().double()
    x = torch.randn(shape, dtype=torch.float64, generator=rng)
    space = trace(model, x)
    assert {group.name: group.size for group in space.groups} == expected_groups
    for width in (0.3, 0.5, 0.7):
        spec = space.nested(width)
        mask = space.mask(spec)
        masked = copy.deepcopy(model)
        with torch.no_grad():
            for key, parameter in masked.named_parameters():
                parameter.mul_(mask[key])
        torch.testing.assert_close(space.extract(model, spec)(x), masked(x), rtol=0, atol=1e-10)
