"""Modules of torch itself, alone or in the smallest net that uses them."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils import parametrizations

from .architecture import CLASSES, VOCABULARY, Zoo, image, normal, tokens

ZOO = Zoo("modules of torch")


def head(channels: int) -> list[nn.Module]:
    """Return global pooling and class scores."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]


class First(nn.Module):
    """A module that returns its input's first entry's last position: what a recurrent layer returns."""

    def forward(self, output: tuple[Tensor, ...]) -> Tensor:
        return output[0][:, -1]


def recurrent(layer: nn.Module, size: int) -> nn.Module:
    return nn.Sequential(nn.Embedding(VOCABULARY, 16), layer, First(), nn.Linear(size, CLASSES))


def sequence(encoder: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Embedding(VOCABULARY, 32), encoder, nn.Linear(32, CLASSES))


ZOO.add(
    "Linear, BatchNorm1d",
    lambda: nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, CLASSES)),
    normal((8,)),
)
ZOO.add(
    "Conv1d",
    lambda: nn.Sequential(
        nn.Conv1d(3, 16, 3),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(16, 32, 3),
        nn.ELU(),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(32, CLASSES),
    ),
    normal((3, 32)),
)
ZOO.add(
    "Conv2d, Flatten",
    lambda: nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 13 * 13, CLASSES),
    ),
    image(),
)
ZOO.add(
    "Conv3d",
    lambda: nn.Sequential(
        nn.Conv3d(3, 16, 3),
        nn.BatchNorm3d(16),
        nn.ReLU(),
        nn.AvgPool3d(2),
        nn.Conv3d(16, 16, 3, padding=1),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    ),
    normal((3, 8, 8, 8)),
)
ZOO.add(
    "ConvTranspose2d autoencoder",
    lambda: nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 2, 2),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 2, 2),
    ),
    image(),
)
ZOO.add(
    "depthwise and grouped Conv2d",
    lambda: nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.Conv2d(32, 32, 3, groups=32),
        nn.Conv2d(32, 64, 1, groups=4),
        nn.ReLU(),
        *head(64),
    ),
    image(),
)
ZOO.add(
    "PixelShuffle",
    lambda: nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.PReLU(16),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.PixelShuffle(2),
        nn.Conv2d(8, 3, 3, padding=1),
    ),
    image(16),
)
ZOO.add(
    "PixelUnshuffle",
    lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.PixelUnshuffle(2), nn.Conv2d(32, 16, 1), *head(16)
    ),
    image(16),
)
ZOO.add(
    "Upsample, padding layers",
    lambda: nn.Sequential(
        nn.ReflectionPad2d(1),
        nn.Conv2d(3, 16, 3),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.ReplicationPad2d(1),
        nn.Conv2d(16, 3, 3),
    ),
    image(16),
)
ZOO.add(
    "InstanceNorm2d",
    lambda: nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.InstanceNorm2d(16, affine=True),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3),
        nn.InstanceNorm2d(16, affine=True, track_running_stats=True),
        *head(16),
    ),
    image(),
)
ZOO.add(
    "GroupNorm",
    lambda: nn.Sequential(nn.Conv2d(3, 32, 3), nn.GroupNorm(4, 32), nn.SiLU(), *head(32)),
    image(),
)
ZOO.add(
    "LocalResponseNorm",
    lambda: nn.Sequential(nn.Conv2d(3, 32, 3), nn.LocalResponseNorm(5), nn.ReLU(), *head(32)),
    image(),
)
ZOO.add(
    "RMSNorm, LayerNorm",
    lambda: nn.Sequential(
        nn.Linear(8, 32), nn.RMSNorm(32), nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, CLASSES)
    ),
    normal((8,)),
)
ZOO.add("GLU", lambda: nn.Sequential(nn.Linear(8, 64), nn.GLU(), nn.Linear(32, CLASSES)), normal((8,)))
ZOO.add(
    "Softmax over channels",
    lambda: nn.Sequential(nn.Linear(8, 32), nn.Softmax(-1), nn.Linear(32, CLASSES)),
    normal((8,)),
)
ZOO.add(
    "weight_norm",
    lambda: nn.Sequential(
        parametrizations.weight_norm(nn.Linear(8, 32)),
        nn.ReLU(),
        parametrizations.weight_norm(nn.Linear(32, CLASSES)),
    ),
    normal((8,)),
)
ZOO.add(
    "spectral_norm",
    lambda: nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(8, 32)),
        nn.ReLU(),
        parametrizations.spectral_norm(nn.Linear(32, CLASSES)),
    ),
    normal((8,)),
)
ZOO.add(
    "orthogonal",
    lambda: nn.Sequential(parametrizations.orthogonal(nn.Linear(16, 32)), nn.ReLU(), nn.Linear(32, CLASSES)),
    normal((16,)),
)
ZOO.add(
    "EmbeddingBag",
    lambda: nn.Sequential(nn.EmbeddingBag(VOCABULARY, 32, mode="mean"), nn.Linear(32, CLASSES)),
    tokens(),
)
ZOO.add("RNN", lambda: recurrent(nn.RNN(16, 32, 2, batch_first=True), 32), tokens())
ZOO.add("GRU", lambda: recurrent(nn.GRU(16, 32, 2, batch_first=True), 32), tokens())
ZOO.add("LSTM", lambda: recurrent(nn.LSTM(16, 32, 2, batch_first=True), 32), tokens())
ZOO.add(
    "bidirectional LSTM",
    lambda: recurrent(nn.LSTM(16, 32, 2, batch_first=True, bidirectional=True), 64),
    tokens(),
)
ZOO.add(
    "LSTM with proj_size", lambda: recurrent(nn.LSTM(16, 32, 2, batch_first=True, proj_size=16), 16), tokens()
)
ZOO.add(
    "TransformerEncoder",
    lambda: sequence(nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)),
    tokens(),
)
ZOO.add(
    "TransformerEncoder, norm first",
    lambda: sequence(
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, 0.1, "gelu", batch_first=True, norm_first=True),
            2,
            nn.LayerNorm(32),
            enable_nested_tensor=False,
        )
    ),
    tokens(),
)
ZOO.add(
    "TransformerDecoder",
    lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 4, 64, batch_first=True), 2),
    normal((6, 32), (5, 32)),
)
ZOO.add("Transformer", lambda: nn.Transformer(32, 4, 1, 1, 64, batch_first=True), normal((6, 32), (5, 32)))


@ZOO.net(normal((5, 8)))
class MultiheadAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        return self.head(self.attention(x, x, x, need_weights=False)[0])


@ZOO.net(normal((5, 8), (7, 12)))
class CrossAttention(nn.Module):
    """Keys and values of other sizes, with bias and a zero key, and averaged weights as a second output."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.memory = nn.Linear(8, 32), nn.Linear(12, 24)
        self.attention = nn.MultiheadAttention(32, 4, kdim=24, vdim=24, add_bias_kv=True, batch_first=True)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        y = self.memory(y)
        found, weights = self.attention(self.query(x), y, y)
        return self.head(found), weights


@ZOO.net(normal((8,), (6,)))
class Bilinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(8, 16), nn.Linear(6, 24)
        self.both, self.head = nn.Bilinear(16, 24, 32), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.head(self.both(self.left(x), self.right(y)).relu())


@ZOO.net(tokens())
class LSTMCell(nn.Module):
    """A recurrence written out: one cell used at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell = nn.Embedding(VOCABULARY, 16), nn.LSTMCell(16, 32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for step in self.embed(x).unbind(1):
            state = self.cell(step, state)
        assert state is not None
        return self.head(state[0])


@ZOO.net(tokens())
class GRUCell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell = nn.Embedding(VOCABULARY, 16), nn.GRUCell(16, 32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        state = x.new_zeros(x.shape[0], 32)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state)
