"""Products of activations and attention, written in the ways in which people write them."""

from __future__ import annotations

from typing import Any

import torch
from operations import Cases
from torch import Tensor, nn
from torch.nn import functional

CASES = Cases()
add = CASES.add


def heads(**rest: int) -> dict[str, nn.Module]:
    """Return projections of a width of 12 (3 heads of 4), some with another number of rows."""
    sizes = {"q": 12, "k": 12, "v": 12} | rest
    layers: dict[str, nn.Module] = {name: nn.Linear(5, rows) for name, rows in sizes.items()}
    return layers | {"out": nn.Linear(sizes["q"], 3)}


@add((2, 4, 5), {"q": 3}, heads)
@add((2, 4, 5), {"q": 4, "v": 4}, heads, heads="inside")
def einsum_attention(m: Any, x: Tensor) -> Tensor:
    q, k, v = (layer(x).view(x.shape[0], -1, 3, 4) for layer in (m.q, m.k, m.v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / 2.0
    mixed = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)
    return m.out(mixed.flatten(2))


@add(
    (2, 4, 5),
    {"q": 3, "q.2": 4, "v": 4},
    lambda: {
        "q": torch.randn(5, 3, 4),
        "k": torch.randn(5, 3, 4),
        "v": torch.randn(5, 3, 4),
        "o": torch.randn(3, 4, 2),
    },
)
def einsum_parameters(m: Any, x: Tensor) -> Tensor:
    """Projections that have an axis of heads of their own: both axes are cut."""
    q, k, v = (torch.einsum("bie,ehd->bhid", x, w) for w in (m.q, m.k, m.v))
    scores = torch.einsum("...id,...jd->...ij", q, k).softmax(-1)
    return torch.einsum("bhij,bhjd,hdo->bio", scores, v, m.o)


@add((2, 4, 5), {"q": 3}, heads)
@add((2, 4, 5), {"q": 4, "v": 4}, heads, heads="inside")
def dot_product_attention(m: Any, x: Tensor) -> Tensor:
    q, k, v = (layer(x).view(x.shape[0], -1, 3, 4).transpose(1, 2) for layer in (m.q, m.k, m.v))
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return m.out(mixed.transpose(1, 2).flatten(2))


@add((2, 4, 5), {"q": 2}, lambda: heads(q=24, k=8, v=8))
@add((2, 4, 5), {"q": 4, "v": 4}, lambda: heads(q=24, k=8, v=8), heads="inside")
def grouped_query_attention(m: Any, x: Tensor) -> Tensor:
    """Six heads of queries for two of keys and values: three heads of queries stay with each of these."""
    q, k, v = (layer(x).unflatten(-1, (-1, 4)).transpose(1, 2) for layer in (m.q, m.k, m.v))
    mixed = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    return m.out(mixed.transpose(1, 2).flatten(2))


@add((2, 4, 5), {"q": 2}, lambda: heads(q=24, k=8, v=8))
def expanded_heads(m: Any, x: Tensor) -> Tensor:
    q, k, v = (layer(x).unflatten(-1, (-1, 4)).transpose(1, 2) for layer in (m.q, m.k, m.v))
    k, v = k.repeat_interleave(3, dim=1), v[:, :, None].expand(-1, -1, 3, -1, -1).flatten(1, 2)
    return m.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


@add((2, 4, 5), {"q": 3, "v": 4}, lambda: heads(k=4, v=4))
def one_head_of_keys(m: Any, x: Tensor) -> Tensor:
    q, k, v = (layer(x).unflatten(-1, (-1, 4)).transpose(1, 2) for layer in (m.q, m.k, m.v))
    mixed = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    return m.out(mixed.transpose(1, 2).flatten(2))


@add((2, 4, 5), {"q": 12, "v": 12}, heads)
@add((2, 4, 5), {"q": 12, "v": 12}, heads, heads="inside")
def one_head(m: Any, x: Tensor) -> Tensor:
    """Without heads the channels of the one are cut, and scores keep the full model's scale."""
    return m.out(functional.scaled_dot_product_attention(m.q(x), m.k(x), m.v(x)))


@add((2, 4, 5), {"q": 4, "v": 4}, heads)
def heads_with_slopes(m: Any, x: Tensor) -> Tensor:
    """Heads that something counts stay (ALiBi), so that the channels inside each are cut."""
    q, k, v = (layer(x).view(x.shape[0], -1, 3, 4).transpose(1, 2) for layer in (m.q, m.k, m.v))
    distance = (torch.arange(4)[:, None] - torch.arange(4)[None]).abs()
    bias = -distance * torch.tensor([0.5, 0.25, 0.125], dtype=x.dtype)[:, None, None]
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
    return m.out(mixed.transpose(1, 2).flatten(2))


@add((2, 4, 5), {"q": 3}, lambda: heads() | {"bias": nn.Embedding(7, 3)})
def relative_positions(m: Any, x: Tensor) -> Tensor:
    """A bias of each head and distance, read from a table: its width is the number of heads."""
    q, k, v = (layer(x).view(x.shape[0], -1, 3, 4).transpose(1, 2) for layer in (m.q, m.k, m.v))
    distance = torch.arange(4)[:, None] - torch.arange(4)[None] + 3
    bias = m.bias(distance).permute(2, 0, 1).unsqueeze(0)
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    return m.out(mixed.transpose(1, 2).flatten(2))


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()


def rotated_by_slices(x: Tensor, angles: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * angles.cos() + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * angles.sin()


def rotated_complex(x: Tensor, angles: Tensor) -> Tensor:
    turn = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turn).flatten(-2)


@add((2, 4, 5), {"q": 3}, heads)
@add((2, 4, 5), {"v": 4}, heads, heads="inside")
def rotary_positions(m: Any, x: Tensor) -> Tensor:
    """Angles that are numbers keep the axis of a head whole."""
    q, k, v = (layer(x).view(x.shape[0], -1, 3, 4).transpose(1, 2) for layer in (m.q, m.k, m.v))
    angles = torch.arange(4.0)[:, None] * torch.tensor([1.0, 0.1])
    q, k = (rotated(part, torch.cat([angles, angles], dim=-1)) for part in (q, k))
    return m.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


@add((2, 4, 5), {"q": 3}, lambda: heads() | {"speed": torch.rand(2)})
@add((2, 4, 5), {"q": 2, "v": 4}, lambda: heads() | {"speed": torch.rand(2)}, heads="inside")
def rotary_table(m: Any, x: Tensor) -> Tensor:
    """Frequencies that the model holds are cut with the pairs of channels that they turn."""
    q, k, v = (layer(x).view(x.shape[0], -1, 3, 4).transpose(1, 2) for layer in (m.q, m.k, m.v))
    angles = torch.outer(torch.arange(4.0, dtype=x.dtype), m.speed)
    q, k = (rotated_by_slices(part, torch.cat([angles, angles], dim=-1)) for part in (q, k))
    return m.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


@add((2, 4, 5), {"q": 3}, lambda: heads() | {"speed": torch.rand(2)})
@add((2, 4, 5), {"q": 2, "v": 4}, lambda: heads() | {"speed": torch.rand(2)}, heads="inside")
def rotary_complex(m: Any, x: Tensor) -> Tensor:
    q, k, v = (layer(x).view(x.shape[0], -1, 3, 4).transpose(1, 2) for layer in (m.q, m.k, m.v))
    angles = torch.outer(torch.arange(4.0, dtype=x.dtype), m.speed)
    q, k = rotated_complex(q, angles), rotated_complex(k, angles)
    return m.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def torch_attention(heads: int = 3, **options: Any) -> dict[str, nn.Module]:
    return {"e": nn.Linear(5, 12), "a": nn.MultiheadAttention(12, heads, batch_first=True, **options)} | {
        "out": nn.Linear(12, 2)
    }


@add((2, 4, 5), {"e": 12, "a": 3, "a.out_proj": 12}, torch_attention)
@add((2, 4, 5), {"e": 12, "a": 4, "a.out_proj": 12}, torch_attention, heads="inside")
def layer_of_torch(m: Any, x: Tensor) -> Tensor:
    h = m.e(x)
    mask = torch.triu(torch.ones(4, 4, dtype=torch.bool), diagonal=1)
    return m.out(m.a(h, h, h, attn_mask=mask, need_weights=False)[0])


@add((2, 4, 5), {"e": 12, "a": 12, "a.out_proj": 12}, lambda: torch_attention(heads=1))
def layer_of_torch_with_one_head(m: Any, x: Tensor) -> Tensor:
    h = m.e(x)
    return m.out(m.a(h, h, h, need_weights=False)[0] + m.a(h, h, h)[0])


@add((2, 4, 5), {"e": 12, "a": 3, "a.out_proj": 12}, torch_attention)
def layer_of_torch_with_weights(m: Any, x: Tensor) -> Tensor:
    h = m.e(x)
    mixed, weights = m.a(h, h, h, key_padding_mask=x[..., 0] > 5.0)
    return m.out(mixed) + weights.sum()


@add(
    (2, 4, 5),
    {"e": 12, "a": 3, "a.out_proj": 12},
    lambda: torch_attention(add_bias_kv=True, add_zero_attn=True),
)
def layer_of_torch_with_more_keys(m: Any, x: Tensor) -> Tensor:
    h = m.e(x)
    return m.out(m.a(h, h, h)[0])


@add(
    (2, 4, 5),
    {"e": 12, "f": 6, "a": 3, "a.out_proj": 12},
    lambda: torch_attention(kdim=6, vdim=6) | {"f": nn.Linear(5, 6)},
)
def cross_attention(m: Any, x: Tensor) -> Tensor:
    return m.out(m.a(m.e(x), m.f(x), m.f(x))[0])


@add(
    (3, 4, 5),
    {"a": 8, "up": 7},
    lambda: {"a": nn.Linear(5, 8), "up": torch.randn(3, 8, 7), "down": torch.randn(3, 7, 2)},
)
def experts(m: Any, x: Tensor) -> Tensor:
    """Rows that are sorted by their expert, as the mixtures of ``transformers`` multiply them."""
    from transformers.integrations import moe  # registers the operation

    assert moe
    multiply, h = torch.ops.transformers.grouped_mm_fallback, m.a(x)
    ends = torch.tensor([1, 2, 4]) * x.shape[0]
    return multiply(multiply(h.flatten(0, 1), m.up, ends).relu(), m.down, ends).unflatten(0, (-1, 4))


@add((2, 4, 5), {"a": 8, "b": 6}, lambda: {"a": nn.Linear(5, 8), "b": nn.Linear(5, 6)})
def outer_products(m: Any, x: Tensor) -> Tensor:
    return torch.einsum("bic,bid->bcd", m.a(x), m.b(x)).square().sum((1, 2))


@add((2, 4, 5), {"a": 8}, lambda: {"a": nn.Linear(5, 8)})
def tensordot_over_channels(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    return torch.matmul(h, h.mT) + torch.tensordot(h, m.a.weight, dims=([2], [0])).sum()


@add(
    (3, 5), {"a": 6, "b": 4}, lambda: {"a": nn.Linear(5, 6), "b": nn.Linear(5, 4), "c": nn.Bilinear(6, 4, 3)}
)
def bilinear(m: Any, x: Tensor) -> Tensor:
    return m.c(m.a(x).tanh(), m.b(x))


@add((2, 4, 5), {"a": 6}, lambda: {"a": nn.Linear(5, 6), "codes": torch.randn(7, 6)})
def nearest_code(m: Any, x: Tensor) -> Tensor:
    """Distances to a table, and the nearest row of it: its rows stay, its width is cut."""
    h = m.a(x)
    d = torch.cdist(h, m.codes, compute_mode="donot_use_mm_for_euclid_dist")
    return d + functional.embedding(d.argmin(-1), m.codes).sum(-1, keepdim=True)


@add((3, 5), {"a": 6}, lambda: {"a": nn.Linear(5, 6), "b": nn.Linear(5, 6)})
def similarities(m: Any, x: Tensor) -> Tensor:
    a, b = m.a(x), m.b(x)
    return functional.cosine_similarity(a, b, dim=-1) + (functional.normalize(a) * b).sum(-1) + a.norm(dim=1)


@add((3, 5), {"a": 6}, lambda: {"a": nn.Linear(5, 6), "b": nn.Linear(5, 6)}, oracle="own")
def distances_and_statistics(m: Any, x: Tensor) -> Tensor:
    a, b = m.a(x).sigmoid(), m.b(x).sigmoid()
    pairs = functional.pairwise_distance(a, b) + torch.linalg.norm(a - b + 1.0, dim=1, ord=-1)
    return (
        pairs + (a * b).softmax(1).square().mean(1) + a.std(1) + b.logsumexp(1) + a.max(1).values + b.amin(1)
    )


@add(
    (2, 4, 5),
    {"a": 6, "b": 7},
    lambda: {"a": nn.Linear(5, 6), "b": nn.Linear(5, 7)},
    oracle="own",
)
def attention_over_channels(m: Any, x: Tensor) -> Tensor:
    """Keys and values are channels: the softmax is one over those that are kept."""
    a, b = m.a(x).mT, m.b(x).mT  # channels are now the positions
    h = functional.scaled_dot_product_attention(a, b, b).mT.sigmoid()
    return h.sum((1, 2))


@add(
    (3, 5),
    {"a": 6},
    lambda: {"a": nn.Linear(5, 6), "w": torch.randn(6, 4), "v": torch.randn(6), "b": torch.randn(4)},
)
def products_with_vectors(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    total = torch.addmm(m.b, h, m.w) + torch.addmv(x[:, 0], h, m.v)[:, None] + torch.mv(h, m.v)[:, None]
    return total + torch.dot(m.v, m.v) + torch.vdot(m.v, m.v) + torch.kron(m.v[None], h).sum(1, keepdim=True)
