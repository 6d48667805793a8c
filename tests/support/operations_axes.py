"""Operations that move, regroup, divide, join, index and order axes; embeddings and recurrent layers."""

from __future__ import annotations

from typing import Any

import torch
from operations import Cases
from torch import Tensor, nn
from torch.nn import functional

CASES = Cases()
add = CASES.add
X = (2, 4, 5)


def layers(*rows: int, **parts: Any) -> dict[str, Any]:
    """Return layers a, b, ... of 5 inputs and the given numbers of rows."""
    return {"abcdef"[i]: nn.Linear(5, n) for i, n in enumerate(rows)} | parts


# moving and regrouping


@add(X, {"a": 12}, lambda: layers(12, z=nn.Linear(12, 2)))
def moved(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)[..., None].movedim(2, 0).swapaxes(0, 1).permute(1, 0, 2, 3).squeeze(-1)
    h = h.flatten(1).t().T.mT
    return m.z(h.unflatten(0, (-1, 4)).expand_as(m.a(x)).ravel().view_as(m.a(x)))


@add((2, 5), {"a": 3}, lambda: layers(12, z=nn.Linear(12, 2)))
@add((2, 5), {"a": 4}, lambda: layers(12, z=nn.Linear(12, 2)), heads="inside")
def regrouped(m: Any, x: Tensor) -> Tensor:
    h = m.a(x).view(-1, 3, 4)
    return m.z(h.transpose(1, 2).transpose(1, 2).reshape_as(m.a(x)))


@add((2, 4, 5), {"a": 3, "b": 4}, lambda: layers(3, 4, z=nn.Linear(12, 2)))
def flattened_product(m: Any, x: Tensor) -> Tensor:
    """An outer product, flattened: both of its factors are cut."""
    return m.z((m.a(x)[..., :, None] * m.b(x)[..., None, :]).flatten(2))


@add(X, {"a": 6}, lambda: layers(6, z=nn.Linear(6, 2)))
def repeated(m: Any, x: Tensor) -> Tensor:
    """A value of size 1 is repeated as often as there are kept channels."""
    h = m.a(x)
    one = x.mean(-1, keepdim=True)
    return m.z(
        h + one.repeat(1, 1, 6) + one.repeat_interleave(6, dim=-1) + one.tile(6) + one.expand(-1, -1, 6)
    )


@add(X, {"a": 6}, lambda: layers(6, z=nn.Linear(12, 2), y=nn.Linear(12, 2)))
def repeated_channels(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    return m.z(h.repeat(1, 1, 2)) + m.y(h.repeat_interleave(2, dim=-1))


@add(X, {"a": 6}, lambda: layers(6, z=nn.Linear(6, 2)))
def made(m: Any, x: Tensor) -> Tensor:
    """Tensors that a forward makes take the sizes of what they meet."""
    h = m.a(x)
    h = h + torch.full((6,), 2.0) + h.new_ones(4, 6) + torch.zeros_like(h) + torch.eye(4)[:, :1]
    h = (
        h
        + h.new_zeros(6)
        + h.new_full((1, 6), 0.5)
        + torch.full_like(h, 0.5)
        + torch.linspace(0, 1, 4)[:, None]
    )
    h = h + h.new_empty(6).zero_() + torch.empty(6).fill_(1.0) + torch.scalar_tensor(2.0) + h.detach()
    return m.z(h.type_as(x).to(x.device).masked_fill(h > 1.0, 0.5).clone().fill_(0.5) * h)


# pieces


@add(
    X,
    {"a": 4, "a.weight": 4, "a.weight.2": 3},
    lambda: layers(11, z=nn.Linear(4, 2), y=nn.Linear(4, 2), w=nn.Linear(3, 2)),
)
def unequal_pieces(m: Any, x: Tensor) -> Tensor:
    """11 in pieces of at most 4: three groups, the sub-model's pieces need not be those of a chunk."""
    one, two, three = m.a(x).chunk(3, dim=-1)
    return m.z(one) + m.y(two.tanh()) + m.w(three)


@add(X, {"a": 2, "a.weight": 3}, lambda: layers(6, z=nn.Linear(3, 2), y=nn.Linear(3, 2)))
def tensor_split_at(m: Any, x: Tensor) -> Tensor:
    one, two, three = m.a(x).tensor_split([2, 3], dim=-1)
    return m.z(torch.cat([one, two], dim=-1)) + m.y(three)


@add(X, {"a": 4}, lambda: layers(12, z=nn.Linear(4, 2)))
def gates_by_slices(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    return m.z(h[..., :4] * h[..., 4:8].sigmoid() + h[..., -4:])


@add(X, {"a": 6}, lambda: layers(12, z=nn.Linear(6, 2)))
def every_second(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    return m.z(h[..., ::2] * h[..., 1::2])


@add(X, {"a": 4, "b": 6}, lambda: layers(4, 6, z=nn.Linear(6, 2), y=nn.Linear(4, 2)))
def slices_of_a_concatenation(m: Any, x: Tensor) -> Tensor:
    h = torch.cat([m.a(x), m.b(x), x], dim=-1)
    return m.y(h[..., :4]) + m.z(h[..., 4:10]) + h[..., -5:][..., :2] + h.narrow(-1, 10, 5)[..., 3:]


@add(X, {"a": 3, "b": 4, "b.weight": 2}, lambda: layers(9, 6, z=nn.Linear(3, 2), y=nn.Linear(6, 2)))
def splits(m: Any, x: Tensor) -> Tensor:
    one, two, three = m.a(x).split(3, dim=-1)
    four, two_more = m.b(x).split([4, 2], dim=-1)
    return m.z(one * two + three) + m.y(torch.cat([four.relu(), two_more], dim=-1))


@add(X, {}, lambda: layers(10, z=nn.Linear(4, 2)))
def stretch_that_is_no_piece(m: Any, x: Tensor) -> Tensor:
    return m.z(m.a(x)[..., 3:7])


@add(X, {"a": 6, "b": 6}, lambda: layers(6, 6, z=nn.Linear(12, 2)))
def concatenated(m: Any, x: Tensor) -> Tensor:
    h = torch.stack([m.a(x), m.a(x).tanh()], dim=1).unbind(1)[1]
    return m.z(torch.hstack([h[:, 0], m.b(x)[:, 1]])) + functional.glu(torch.cat([x, x], -1))[:, 0, :2]


@add(X, {"a": 6}, lambda: layers(6, z=nn.Linear(6, 2)))
def pieces_without_channels(m: Any, x: Tensor) -> Tensor:
    """Empty pieces make no group; of tensors of shape (0,) torch's concatenation sees nothing."""
    h, nothing = m.a(x).split([6, 0], dim=-1)
    empty = nothing.flatten(1).view(x.shape[0], 4, 0) + x.new_zeros(x.shape[0], 4, 0)
    return m.z(torch.cat([torch.empty(0), h, empty, torch.zeros(0, dtype=x.dtype)], dim=-1))


# positions: such axes stay whole, the others go through


@add(X, {"a": 6}, lambda: layers(6, z=nn.Linear(6, 2)))
def ordered_positions(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    h = h.cumsum(1) + h.sort(dim=1)[0] + h.flip(1) + h.roll(1, 1) + h.topk(4, dim=1)[0] + h.cummax(1)[0]
    h = (
        h
        + torch.fft.ifft(torch.fft.fft(h, dim=1), dim=1).real
        + torch.fft.irfft(torch.fft.rfft(h, dim=1), dim=1)
    )
    h = torch.ops.aten.alias(h) + torch.fft.fft(h, n=6, dim=1).real[:, :4]
    h = h.unfold(1, 2, 1).mean(-1) + h.diff(dim=1) + h.index_select(1, torch.tensor([2, 0, 1]))
    return m.z(h + h.median(1, keepdim=True)[0] + h.argmax(1)[:, None])


@add(X, {"a": 6}, lambda: layers(6, z=nn.Linear(6, 2)))
def more_ordered_positions(m: Any, x: Tensor) -> Tensor:
    h = m.a(x).sigmoid()
    h = h.cumprod(1) + h.cummin(1)[0] + h.logcumsumexp(1) + h.rot90(2, (0, 1)).rot90(2, (0, 1))
    h = h + h.kthvalue(2, dim=1, keepdim=True)[0] + h.nanmedian(1, keepdim=True)[0]
    return m.z(h + h.mode(1, keepdim=True)[0] + h.argmin(1, keepdim=True) + h.argsort(1))


@add(X, {}, lambda: layers(6, z=nn.Linear(6, 2)))
def ordered_channels(m: Any, x: Tensor) -> Tensor:
    return m.z(m.a(x).cumsum(-1))


@add(X, {}, lambda: layers(6, z=nn.Linear(6, 2)))
def rolled_as_a_whole(m: Any, x: Tensor) -> Tensor:
    return m.z(m.a(x).roll(1).tril())


@add(X, {"a": 6}, lambda: layers(6, z=nn.Linear(6, 2)))
def read_by_number(m: Any, x: Tensor) -> Tensor:
    h, rank = m.a(x), x[..., 0].argsort(1)
    h = h + h.gather(1, rank[..., None].expand(-1, -1, 6)) + h.take_along_dim(rank[..., None], dim=1)
    return m.z(h[:, [2, 0, 1, 3]] + h[torch.arange(h.shape[0])[:, None], rank] + h.select(1, 0)[:, None])


@add(X, {"a": 6}, lambda: layers(6, z=nn.Linear(6, 2)))
def written_by_number(m: Any, x: Tensor) -> Tensor:
    h, rank = m.a(x), x[..., 0].argsort(1)
    wide = rank[..., None].expand_as(h)
    total = torch.zeros_like(h).scatter(1, wide, h).scatter_add(1, wide, h.tanh())
    total = total.scatter_reduce(1, wide, h, "amax").index_add(1, torch.tensor([1, 3]), h[:, :2])
    total = total.index_fill(1, torch.tensor([1]), 0.5).index_copy(1, torch.tensor([0]), h[:, 3:])
    total[:, [1, 2]] = h[:, :1]
    total[x[..., 0] > 1.0] = 0.25
    total[:, 3] = h[:, 0]
    return m.z(total)


@add(X, {}, lambda: layers(6, z=nn.Linear(6, 2)))
def written_by_mask(m: Any, x: Tensor) -> Tensor:
    h = m.a(x).clone()
    h[h < 0] = 0.0
    return m.z(h.masked_scatter(h > 1.0, h.abs()))


@add((2, 5), {}, lambda: layers(6, z=nn.Linear(6, 2)))
def counted_over_the_whole(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    first = torch.zeros(1, dtype=torch.long)
    weight = m.z.weight.put(first, m.z.weight.take(first + 1)).index_reduce(0, first, m.z.weight[1:], "amax")
    return functional.linear(h, weight) + functional.linear(h, m.z.weight.triu())


@add(X, {"a": 3}, lambda: layers(3, z=nn.Linear(3, 2)))
def crossed(m: Any, x: Tensor) -> Tensor:
    up = torch.linalg.cross(x[..., :3], x[..., 2:]).diagonal(dim1=1, dim2=2)
    return m.z(m.a(x)) + up.sum(-1)[:, None, None]


# layers


@add((2, 4), {"e": 6}, lambda: {"e": nn.Embedding(9, 6), "z": nn.Linear(6, 2)})
def embedded(m: Any, x: Tensor) -> Tensor:
    words = x.abs().mul(2).long().clamp(max=8)
    bags = functional.embedding_bag(words, m.e.weight, mode="mean")
    weighted = functional.embedding_bag(words, m.e.weight, mode="sum", per_sample_weights=x)
    return m.z(m.e(words).sum(1) + bags + weighted + functional.embedding_bag(words, m.e.weight, mode="max"))


@add((2, 4), {"e": 6}, lambda: {"e": nn.Embedding(9, 6), "w": torch.rand(4), "z": nn.Linear(6, 2)})
def embedded_with_weights(m: Any, x: Tensor) -> Tensor:
    """One weight for each place in a bag: bags stay whole."""
    words = x.abs().mul(2).long().clamp(max=8)
    weights = m.w.expand(x.shape[0], -1)
    return m.z(functional.embedding_bag(words, m.e.weight, mode="sum", per_sample_weights=weights))


@add((2, 4), {"e": 6, "f": 3}, lambda: {"e": nn.Embedding(9, 6), "f": nn.Linear(6, 3), "g": nn.Linear(3, 6)})
def tied_table(m: Any, x: Tensor) -> Tensor:
    h = m.g(m.f(m.e(x.abs().mul(2).long().clamp(max=8))))
    return functional.linear(h, m.e.weight) + functional.one_hot(x.abs().long().clamp(max=8), 9)


@add(
    X,
    {"a": 6, "r": 4, "s": 3},
    lambda: layers(
        6,
        r=nn.LSTM(6, 4, num_layers=2, bidirectional=True, batch_first=True),
        s=nn.GRU(8, 3),
        z=nn.Linear(3, 2),
    ),
)
def recurrent(m: Any, x: Tensor) -> Tensor:
    h, _ = m.r(m.a(x))
    return m.z(m.s(h.transpose(0, 1))[0])


def projected(cells: int) -> dict[str, Any]:
    lstm = nn.LSTM(6, cells, proj_size=4, batch_first=True)
    return layers(6, r=lstm, s=nn.RNN(4, 5, nonlinearity="relu"), z=nn.Linear(5, 2))


@add(X, {"a": 6, "r": 4, "s": 5}, lambda: projected(12))
def recurrent_projected(m: Any, x: Tensor) -> Tensor:
    """Three cells stay with each of the 4 projected units."""
    return m.z(m.s(m.r(m.a(x))[0])[0])


@add(X, {"a": 6, "r": 4, "s": 5}, lambda: projected(7))
def recurrent_projected_unevenly(m: Any, x: Tensor) -> Tensor:
    """All 7 cells stay."""
    return m.z(m.s(m.r(m.a(x))[0])[0])


@add(X, {"r": 4}, lambda: layers(6, r=nn.GRU(4, 4, batch_first=True), z=nn.Linear(4, 2)))
def recurrent_over_channels(m: Any, x: Tensor) -> Tensor:
    """A time axis is never cut, whatever it was before."""
    return m.z(m.r(m.a(x).mT)[0])


@add(
    X,
    {"b": 6, "c": 5, "d": 4, "e": 3, "f": 3},
    lambda: {
        "b": nn.LSTMCell(5, 6),
        "c": nn.GRUCell(6, 5),
        "d": nn.RNNCell(5, 4),
        "e": nn.RNNCell(4, 3, nonlinearity="relu"),
        "f": nn.RNN(3, 3, batch_first=True),
        "z": nn.Linear(3, 2),
    },
)
def cells(m: Any, x: Tensor) -> Tensor:
    """One step each: an LSTM's, a GRU's, two plain ones; then a plain layer over what they made."""
    h, _ = m.b(x[:, 0])
    h = m.e(m.d(m.c(h)))
    return m.z(m.f(torch.stack([h, h.tanh()], dim=1))[0])


@add(X, {"a": 6}, lambda: layers(6, p=nn.PReLU(4), q=nn.PReLU(), z=nn.Linear(6, 2)))
def slopes(m: Any, x: Tensor) -> Tensor:
    """One slope for all, and one for each token, which stand where channels do."""
    return m.z(m.q(m.p(m.a(x))))


@add(X, {"a": 6}, lambda: layers(6, z=nn.Linear(6, 2)))
def random_numbers(m: Any, x: Tensor) -> Tensor:
    """Random numbers for each channel; times zero, as those of two models differ."""
    h = m.a(x)
    noise = (
        torch.rand_like(h).bernoulli()
        + torch.randn_like(h)
        + torch.randint_like(h.detach(), 3)
        + torch.poisson(h.abs())
    )
    made = torch.empty_like(h)
    noise = (
        noise
        + made.uniform_()
        + made.normal_()
        + made.exponential_()
        + made.random_(3)
        + made.geometric_(0.5)
    )
    noise = noise + torch.normal(0.0, 1.0, (x.shape[0], 4, 6)) + torch.normal(h.detach(), 1.0)
    noise = noise + made.log_normal_() + torch.rand(6) + torch.randn(4, 6) + made.cauchy_().clamp(-9.0, 9.0)
    h = functional.rrelu(functional.dropout(functional.dropout1d(h, 0.0), 0.0), 0.2, 0.2)
    h = functional.alpha_dropout(functional.feature_alpha_dropout(h, 0.0), 0.0)
    return m.z(torch.native_dropout(h, 0.0, False)[0] + noise * 0.0)


@add(X, {"a": 6, "b": 3}, lambda: layers(6, 3, z=nn.Linear(6, 2), y=nn.Linear(3, 2)))
def data_without_gradient(m: Any, x: Tensor) -> Tensor:
    """What stands behind ``.data``: parameters, activations and views of them, the input."""
    h = functional.linear(x.data, m.a.weight.data) + m.a.bias.data
    one, two = torch.cat([h.mT.data.mT, m.b(x)], dim=-1).split([6, 3], dim=-1)
    return m.z(one.data) + functional.linear(two, m.y.weight.data[:, :].data)


@add(X, {"a": 6}, lambda: layers(6, z=nn.Linear(6, 2)))
def complex_numbers(m: Any, x: Tensor) -> Tensor:
    h = torch.complex(m.a(x), m.a(x).tanh())
    return m.z(
        (h * h.conj().resolve_conj()).real
        + h.conj().imag.resolve_neg()
        + h.abs().detach() // 1.0
        + functional.hardswish(h.real)
    )


@add(X, {"a": 6}, lambda: layers(6), oracle="own")
def statistics(m: Any, x: Tensor) -> Tensor:
    """Over the kept channels."""
    h = m.a(x).sigmoid()
    spread = torch.var_mean(h, dim=-1)[0] + torch.std_mean(h, dim=-1)[1] + h.var(-1) + h.prod(-1)
    extremes = h.amax(-1) + h.amin(-1) + h.min(dim=-1)[0] + (h > 0.9).any(-1) + (h > 0.1).all(-1)
    sums = h.nansum(-1) + h.count_nonzero(-1) + functional.logsigmoid(h).log_softmax(-1).amax(-1)
    return spread + extremes + sums


@add(X, {"a": 6}, lambda: layers(6, z=nn.Linear(6, 3)))
def losses(m: Any, x: Tensor) -> Tensor:
    """Of scores and of images of scores, against classes and against numbers."""
    scores = m.z(m.a(x))
    classes = x[..., 0].sign().long() + 1
    flat, targets = scores.flatten(0, 1), x[..., :3].sigmoid()
    distances = functional.mse_loss(scores, targets) + functional.smooth_l1_loss(scores, targets)
    chances = functional.binary_cross_entropy(scores.sigmoid(), targets)
    likelihoods = functional.cross_entropy(flat, classes.flatten()) + functional.cross_entropy(
        scores.mT[..., None], classes[..., None]
    )
    rest = functional.huber_loss(scores, targets) + functional.binary_cross_entropy_with_logits(
        scores, targets
    )
    return distances + chances + likelihoods + rest
