"""Other nets written here after well-known ones, each for one way in which channels are wired."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .architecture import BATCH, CLASSES, VOCABULARY, Zoo, image, normal, tokens

ZOO = Zoo("nets written out in torch")


@ZOO.net(image())
class Mixer(nn.Module):
    """Tolstikhin et al. 2021: layers along the patches and along the channels, in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 32, 8, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2))
        self.along = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))
        self.across = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.scores = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = x + self.along(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        x = x + self.across(self.norms[1](x))
        return self.scores(x.mean(1))


@ZOO.net(image())
class FusedAttention(nn.Module):
    """A ViT block as it is written by hand: one projection for queries, keys and values; a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 32, 8, 8)
        self.token, self.position = nn.Parameter(torch.zeros(1, 1, 32)), nn.Parameter(torch.zeros(1, 17, 32))
        self.norm = nn.LayerNorm(32)
        self.qkv, self.out, self.scores = nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
        query, key, value = qkv[0], qkv[1], qkv[2]
        weights = (query @ key.transpose(-2, -1) * 8**-0.5).softmax(-1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(batch, length, width))
        return self.scores(x[:, 0])


@ZOO.net(tokens())
class EinsumAttention(nn.Module):
    """Attention in Einstein's notation, weights of three axes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.query, self.key, self.value = (nn.Parameter(torch.randn(32, 4, 8) / 6) for _ in range(3))
        self.out = nn.Parameter(torch.randn(4, 8, 32) / 6)
        self.scores = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        query, key, value = (torch.einsum("btd,dhe->bhte", x, w) for w in (self.query, self.key, self.value))
        weights = torch.einsum("bhse,bhte->bhst", query, key).softmax(-1)
        found = torch.einsum("bhst,bhte->bshe", weights, value)
        return self.scores(x + torch.einsum("bshe,hed->bsd", found, self.out))


@ZOO.net(image())
class WindowAttention(nn.Module):
    """Liu et al. 2021 (Swin): attention inside windows of a shifted image, with a table of biases."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 32, 4, 4)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.bias = nn.Parameter(torch.zeros(49, 4))
        place = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        offset = place[:, :, None] - place[:, None]
        self.register_buffer("offsets", (offset[0] + 3) * 7 + offset[1] + 3)
        self.merge, self.top = nn.Linear(128, 64), nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).permute(0, 2, 3, 1).roll((-2, -2), (1, 2))
        batch, height, width, channels = x.shape
        x = x.view(batch, height // 4, 4, width // 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
        windows = x.reshape(-1, 16, channels)
        qkv = self.qkv(windows).view(-1, 16, 3, 4, channels // 4).permute(2, 0, 3, 1, 4)
        bias = self.bias[self.offsets.view(-1)].view(16, 16, 4).permute(2, 0, 1)
        found = F.scaled_dot_product_attention(*qkv.unbind(0), attn_mask=bias[None])
        windows = self.out(found.transpose(1, 2).reshape(-1, 16, channels))
        x = windows.view(batch, height // 4, width // 4, 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
        x = x.reshape(batch, height, width, channels).roll((2, 2), (1, 2))
        x = torch.cat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1)
        return self.top(self.merge(x).mean((1, 2)))


@ZOO.net(tokens())
class TiedLanguageModel(nn.Module):
    """Press and Wolf 2017: scores by the embedding's own weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.body = nn.Embedding(VOCABULARY, 32), nn.GRU(32, 32, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.body(self.embed(x))[0], self.embed.weight)


@ZOO.net(tokens())
class TextCNN(nn.Module):
    """Kim 2014: convolutions of several kernels over the embeddings, the largest value of each."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 24)
        self.convs = nn.ModuleList(nn.Conv1d(24, 16, kernel) for kernel in (2, 3, 4))
        self.scores = nn.Linear(48, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).transpose(1, 2)
        return self.scores(torch.cat([layer(x).relu().amax(-1) for layer in self.convs], -1))


@ZOO.net(normal((3, 64)))
class WaveNet(nn.Module):
    """van den Oord et al. 2016: dilated causal convolutions with gates, skips summed."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(3, 16, 1)
        self.gates = nn.ModuleList(nn.Conv1d(16, 32, 2, dilation=2**i) for i in range(3))
        self.skips = nn.ModuleList(nn.Conv1d(16, 24, 1) for _ in range(3))
        self.residuals = nn.ModuleList(nn.Conv1d(16, 16, 1) for _ in range(3))
        self.scores = nn.Conv1d(24, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        total = None
        for i, (gate, skip, residual) in enumerate(zip(self.gates, self.skips, self.residuals, strict=True)):
            value, switch = gate(F.pad(x, (2**i, 0))).chunk(2, 1)
            y = value.tanh() * switch.sigmoid()
            total = skip(y) if total is None else total + skip(y)
            x = x + residual(y)
        assert total is not None
        return self.scores(total.relu())


@ZOO.net(lambda: (torch.randn(BATCH, 6, 8), torch.rand(BATCH, 6, 6)))
class GraphConvolution(nn.Module):
    """Kipf and Welling 2017: a dense adjacency matrix times the nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.scores = nn.Linear(8, 32), nn.Linear(32, 24), nn.Linear(24, CLASSES)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        x = (edges @ self.first(nodes)).relu()
        x = torch.bmm(edges, self.second(x)).relu()
        return self.scores(x.mean(1))


@ZOO.net(normal((3, 32)))
class PointNet(nn.Module):
    """Qi et al. 2017: a matrix is predicted and applied; points are pooled by their maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.spatial = nn.Sequential(
            nn.Conv1d(3, 16, 1), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(16, 9)
        )
        self.points = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1))
        self.scores = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        turn = self.spatial(x).view(-1, 3, 3) + torch.eye(3, device=x.device)
        return self.scores(self.points(turn @ x).max(-1).values)


@ZOO.net(normal((8,), (8,)))
class Siamese(nn.Module):
    """Bromley et al. 1993: one tower for both inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
        self.scores = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.scores((self.tower(x) - self.tower(y)).abs())


@ZOO.net(normal((8,)))
class VariationalAutoencoder(nn.Module):
    """Kingma and Welling 2014: noise drawn inside the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.moments = nn.Linear(8, 32), nn.Linear(32, 16)
        self.decode = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, spread = self.moments(self.encode(x).relu()).chunk(2, -1)
        drawn = mean + torch.randn_like(mean) * (spread / 2).exp()
        return self.decode(drawn), mean, spread


@ZOO.net(normal((8,)))
class HyperNetwork(nn.Module):
    """Ha et al. 2017: the weights of a layer are made by another."""

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Parameter(torch.randn(16))
        self.maker = nn.Linear(16, 8 * 24)
        self.scores = nn.Linear(24, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(F.linear(x, self.maker(self.code).view(24, 8)).relu())


@ZOO.net(normal((8,)))
class MixtureOfExperts(nn.Module):
    """Jacobs et al. 1991: all experts run, weighted by a gate; their weights are one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.gate = nn.Linear(8, 16), nn.Linear(16, 4)
        self.inner, self.outer = (
            nn.Parameter(torch.randn(4, 16, 32) / 4),
            nn.Parameter(torch.randn(4, 32, 16) / 6),
        )
        self.scores = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        found = torch.matmul(torch.matmul(x, self.inner).relu(), self.outer)
        return self.scores((found * self.gate(x).softmax(-1).T[..., None]).sum(0))


@ZOO.net(image(8))
class CoordinateBuffers(nn.Module):
    """Liu et al. 2018 (CoordConv): positions as further channels; a buffer and a parameter along channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(5, 16, 3, padding=1), nn.Conv2d(16, 16, 1)
        self.gain = nn.Parameter(torch.ones(16, 1, 1))
        self.register_buffer("shift", torch.zeros(16))
        self.top = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        line = torch.linspace(-1, 1, x.shape[-1], device=x.device)
        grid = torch.stack(torch.meshgrid(line, line, indexing="ij"))
        x = self.first(torch.cat([x, grid.expand(x.shape[0], -1, -1, -1)], 1))
        return self.top(self.second(x * self.gain + self.shift[:, None, None]).mean((2, 3)))


@ZOO.net(normal((8,)))
class Maxout(nn.Module):
    """Goodfellow et al. 2013: the largest of several linear pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces, self.scores = nn.Linear(8, 96), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.pieces(x).view(-1, 32, 3).max(-1).values)


@ZOO.net(image(16))
class WeightStandardisation(nn.Module):
    """Qiao et al. 2019: kernels are normalised by their mean and spread before they are used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 32, 3)
        self.top = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.first, self.second):
            weight = layer.weight
            mean, spread = weight.mean((1, 2, 3), keepdim=True), weight.std((1, 2, 3), keepdim=True)
            x = F.conv2d(x, (weight - mean) / (spread + 1e-5), layer.bias).relu()
        return self.top(x.mean((2, 3)))


@ZOO.net(image(16))
class Unfold(nn.Module):
    """A convolution as a matrix product of patches."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.weight = nn.Parameter(torch.randn(16, 72) / 8)
        self.scores = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        patches = F.unfold(self.stem(x), 3, padding=1)
        return self.scores((self.weight @ patches).relu().mean(-1))


@ZOO.net(normal((6, 8)))
class LinearAttention(nn.Module):
    """Katharopoulos et al. 2020: keys and values are summed before queries meet them."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 32) for _ in range(3))
        self.scores = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            layer(x).view(x.shape[0], -1, 4, 8).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        query, key = F.elu(query) + 1, F.elu(key) + 1
        found = query @ (key.transpose(-1, -2) @ value)
        norm = (query * key.sum(-2, keepdim=True)).sum(-1, keepdim=True)
        return self.scores((found / norm).transpose(1, 2).flatten(2))


@ZOO.net(normal((8,)))
class DeepAndCross(nn.Module):
    """Wang et al. 2017: products of features and their sums beside a deep tower."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.cross = nn.ParameterList(nn.Parameter(torch.randn(32) / 6) for _ in range(2))
        self.deep = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 24))
        self.scores = nn.Linear(56, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        first = crossed = self.embed(x)
        for weight in self.cross:
            crossed = first * (crossed @ weight)[:, None] + crossed
        return self.scores(torch.cat([crossed, self.deep(first)], -1))


@ZOO.net(normal((8,)))
class EarlyExit(nn.Module):
    """Teerapittayanon et al. 2016: a branch on a value that the net computes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 32)
        self.scores = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        if x.mean() > 0.5:
            return self.scores(x)
        return self.scores(self.second(x).relu())


@ZOO.net(normal((32,)))
class Spectral(nn.Module):
    """Rao et al. 2021 (global filters): a Fourier transform along the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.scores = nn.Linear(1, 16), nn.Linear(16, CLASSES)
        self.filter = nn.Parameter(torch.randn(17, 16))

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(self.embed(x[..., None]), dim=1)
        return self.scores(torch.fft.irfft(spectrum * self.filter, n=32, dim=1).mean(1))
