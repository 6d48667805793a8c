"""Random networks as a hypothesis strategy.

A net is a stem, a chain of blocks and a head. Blocks nest: a residual connection, a concatenation or a
shared module has chains of its own inside. There are two dialects: images (channels are axis 1, layers are
convolutions) and sequences (channels are the last axis, layers are linear, attention, recurrent). Nothing
here knows how slicing works. What every net promises: all its channels can be cut, those of its inputs and of
its output excepted; the only parameter without any is ``bias`` of the last layer.

Legend: B batch, C channels, S the axes of positions (H and W, or T), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

SIDE, STEPS, VOCABULARY, CLASSES = 4, 5, 7, 3
ACTIVATIONS = (nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.Hardswish, nn.LeakyReLU, nn.Softplus)


@dataclass(frozen=True)
class Net:
    """A random network.

    Attributes:
        model: The module, float64, no parameter at a special value.
        example: An input, batch first.
        heads: How attention is to be cut.
    """

    model: nn.Module
    example: Tensor
    heads: str

    def inputs(self, batch: int, seed: int = 0) -> Tensor:
        """Return other inputs of the same kind."""
        rng = torch.Generator().manual_seed(seed)
        shape = (batch, *self.example.shape[1:])
        if self.example.is_floating_point():
            return torch.randn(shape, dtype=self.example.dtype, generator=rng)
        return torch.randint(VOCABULARY, shape, generator=rng)

    def __repr__(self) -> str:  # what hypothesis prints of an example that fails
        return f"Net({self.model}, input {tuple(self.example.shape)}, heads={self.heads!r})"


@dataclass(frozen=True)
class Dialect:
    """What differs between images and sequences.

    Attributes:
        dim: The axis of the channels.
        point: (channels in, channels out, bias) -> a layer that mixes channels at each position.
        layers: Ways of making a layer of its own kind: (draw, channels) -> (module, channels).
        norms: Channels -> a norm that treats each channel on its own.
        mixing: Channels -> a norm or another statistic over the channels, or noise.
    """

    dim: int
    point: Callable[..., nn.Module]
    layers: Sequence[Callable[[st.DrawFn, int], tuple[nn.Module, int]]]
    norms: Sequence[Callable[[int], nn.Module]]
    mixing: Sequence[Callable[[int], nn.Module]]


# Blocks that both dialects share.


class Joined(nn.Module):
    """Branches side by side: a concatenation, a sum (with an identity: a residual block) or a product."""

    def __init__(self, branches: Sequence[nn.Module], how: str, dim: int) -> None:
        super().__init__()
        self.branches, self.how, self.dim = nn.ModuleList(branches), how, dim

    def forward(self, x: Tensor) -> Tensor:
        first, *others = values = [branch(x) for branch in self.branches]
        if self.how == "cat":
            return torch.cat(values, self.dim)
        for value in others:
            first = first + value if self.how == "add" else first * value
        return first

    def extra_repr(self) -> str:
        return self.how


class Divided(nn.Module):
    """A layer whose channels are divided among branches: into chunks, slices or pieces of different sizes."""

    def __init__(
        self, make: nn.Module, sizes: Sequence[int], branches: Sequence[nn.Module], dim: int, *, sliced: bool
    ) -> None:
        super().__init__()
        self.make, self.sizes, self.dim, self.sliced = make, list(sizes), dim, sliced
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        y, size = self.make(x), self.sizes[0]
        if len(set(self.sizes)) > 1:
            pieces = y.split(self.sizes, self.dim)
        elif self.sliced:
            pieces = tuple(y.narrow(self.dim, i * size, size) for i in range(len(self.sizes)))
        else:
            pieces = y.chunk(len(self.sizes), self.dim)
        return torch.cat(
            [branch(piece) for branch, piece in zip(self.branches, pieces, strict=True)], self.dim
        )

    def extra_repr(self) -> str:
        return str(self.sizes)


class Gated(nn.Module):
    """A layer of which one half is the gate of the other."""

    def __init__(self, make: nn.Module, dim: int, *, written_out: bool) -> None:
        super().__init__()
        self.make, self.dim, self.written_out = make, dim, written_out

    def forward(self, x: Tensor) -> Tensor:
        if not self.written_out:
            return functional.glu(self.make(x), self.dim)
        value, gate = self.make(x).chunk(2, self.dim)
        return value * functional.silu(gate)


class Excited(nn.Module):
    """Squeeze and excite: channels scaled by a function of their means over the positions."""

    def __init__(self, down: nn.Module, up: nn.Module, dim: int) -> None:
        super().__init__()
        self.down, self.up = down, up
        self.over = [2, 3] if dim == 1 else [1]

    def forward(self, x: Tensor) -> Tensor:
        return x * self.up(self.down(x.mean(self.over, keepdim=True)).relu()).sigmoid()


class Twice(nn.Module):
    """A shared module that is applied twice."""

    def __init__(self, shared: nn.Module) -> None:
        super().__init__()
        self.shared = shared

    def forward(self, x: Tensor) -> Tensor:
        return self.shared(self.shared(x))


class Scaled(nn.Module):
    """Parameters that a module holds itself: a scale and a shift of each channel."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        shape = (channels, 1, 1) if dim == 1 else (channels,)
        self.scale, self.shift = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.empty(shape))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.shift, x, self.scale)


# Images.


class Shuffled(nn.Module):
    """A layer of groups of channels that are then interleaved (ShuffleNet)."""

    def __init__(self, make: nn.Module, groups: int) -> None:
        super().__init__()
        self.make, self.groups = make, groups

    def forward(self, x: Tensor) -> Tensor:
        y = self.make(x)
        b, c, h, w = y.shape
        return y.view(b, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(b, c, h, w)


class ChannelsLast(nn.Module):
    """A layer for channels in the last axis, used on images."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class MeanGate(nn.Module):
    """All channels scaled by a function of their mean."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return x * x.mean(self.dim, keepdim=True).sigmoid()


def full_convolution(draw: st.DrawFn, channels: int) -> tuple[nn.Module, int]:
    out, kernel, dilation = draw(st.integers(2, 6)), draw(st.sampled_from([1, 3])), draw(st.integers(1, 2))
    padding = dilation * (kernel // 2)
    bias = draw(st.booleans())
    return nn.Conv2d(channels, out, kernel, padding=padding, dilation=dilation, bias=bias), out


def grouped_convolution(draw: st.DrawFn, channels: int) -> tuple[nn.Module, int]:
    groups, inside, outside = draw(st.integers(2, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    return nn.Sequential(
        nn.Conv2d(channels, groups * inside, 1),
        nn.Conv2d(groups * inside, groups * outside, 3, padding=1, groups=groups, bias=draw(st.booleans())),
    ), groups * outside


def depthwise_convolution(draw: st.DrawFn, channels: int) -> tuple[nn.Module, int]:
    out = channels * draw(st.integers(1, 2))
    return nn.Conv2d(channels, out, 3, padding=1, groups=channels, bias=draw(st.booleans())), out


def transposed_convolution(draw: st.DrawFn, channels: int) -> tuple[nn.Module, int]:
    groups, inside, outside = draw(st.integers(2, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    grouped, out = draw(st.booleans()), groups * outside
    up = nn.ConvTranspose2d(groups * inside, out, 3, padding=1, groups=groups if grouped else 1)
    return nn.Sequential(nn.Conv2d(channels, groups * inside, 1), up), out


def shuffle(draw: st.DrawFn, channels: int) -> tuple[nn.Module, int]:
    groups, out = draw(st.integers(2, 3)), 6
    return Shuffled(nn.Conv2d(channels, out, 1), groups), out


def pixel_shuffle(draw: st.DrawFn, channels: int) -> tuple[nn.Module, int]:
    out = draw(st.integers(2, 3))
    return nn.Sequential(nn.Conv2d(channels, 4 * out, 1), nn.PixelShuffle(2), nn.AvgPool2d(2)), out


def up_and_down(draw: st.DrawFn, channels: int) -> tuple[nn.Module, int]:
    pool = draw(st.sampled_from([nn.MaxPool2d, nn.AvgPool2d]))
    mode = draw(st.sampled_from(["nearest", "bilinear"]))
    return nn.Sequential(pool(2), nn.Upsample(scale_factor=2, mode=mode)), channels


IMAGES = Dialect(
    dim=1,
    point=lambda i, o, bias=True: nn.Conv2d(i, o, 1, bias=bias),
    layers=[
        full_convolution,
        grouped_convolution,
        depthwise_convolution,
        transposed_convolution,
        shuffle,
        pixel_shuffle,
        up_and_down,
    ],
    norms=[
        nn.BatchNorm2d,
        lambda c: nn.BatchNorm2d(c, affine=False),
        lambda c: nn.InstanceNorm2d(c, affine=True),
        lambda c: nn.GroupNorm(c, c),
        nn.PReLU,
        lambda c: Scaled(c, 1),
    ],
    mixing=[
        lambda c: nn.GroupNorm(1, c),
        lambda c: nn.GroupNorm(2 if c % 2 == 0 else c, c),
        lambda c: ChannelsLast(nn.LayerNorm(c)),
        lambda c: ChannelsLast(nn.RMSNorm(c)),
        lambda c: nn.Softmax(1),
        lambda c: MeanGate(1),
        lambda c: nn.Dropout2d(0.3),
    ],
)


# Sequences.


class Attention(nn.Module):
    """Self-attention with fused or separate projections, perhaps with fewer heads of keys and values."""

    def __init__(self, c: int, heads: int, shared: int, size: int, *, fused: bool, by_hand: bool) -> None:
        super().__init__()
        self.heads, self.shared, self.size, self.by_hand = heads, shared, size, by_hand
        self.kv_heads = heads // shared
        if fused:
            self.qkv = nn.Linear(c, 3 * heads * size)
        else:
            self.q = nn.Linear(c, heads * size)
            self.k = nn.Linear(c, self.kv_heads * size, bias=False)
            self.v = nn.Linear(c, self.kv_heads * size)
        self.out = nn.Linear(heads * size, c)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        if hasattr(self, "qkv"):
            q, k, v = self.qkv(x).view(b, t, 3, self.heads, self.size).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            q = self.q(x).view(b, t, self.heads, self.size).transpose(1, 2)
            k = self.k(x).view(b, t, self.kv_heads, self.size).transpose(1, 2)
            v = self.v(x).view(b, t, self.kv_heads, self.size).transpose(1, 2)
        if self.shared > 1:  # each head of keys and values serves several of queries
            k, v = (
                y[:, :, None].expand(-1, -1, self.shared, -1, -1).reshape(b, self.heads, t, self.size)
                for y in (k, v)
            )
        if self.by_hand:
            scores = (q @ k.transpose(-2, -1)) / self.size**0.5
            y = scores.masked_fill(torch.ones(t, t).tril() == 0, float("-inf")).softmax(-1) @ v
        else:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class TorchAttention(nn.Module):
    """torch's own multi-head attention."""

    def __init__(self, c: int, heads: int, *, weights: bool) -> None:
        super().__init__()
        self.inner, self.weights = nn.MultiheadAttention(c, heads, batch_first=True), weights

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=self.weights)[0]


class Recurrent(nn.Module):
    """The outputs of a recurrent layer at all steps."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class OverTime(nn.Module):
    """A layer for channels in axis 1, used on sequences."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


def linear(draw: st.DrawFn, channels: int) -> tuple[nn.Module, int]:
    out = draw(st.integers(2, 6))
    return nn.Linear(channels, out, bias=draw(st.booleans())), out


def attention(draw: st.DrawFn, channels: int) -> tuple[nn.Module, int]:
    heads, size, fused = draw(st.integers(1, 2)) * 2, draw(st.integers(2, 3)), draw(st.booleans())
    shared = 1 if fused or heads == 2 else draw(st.sampled_from([1, 2]))
    return Attention(channels, heads, shared, size, fused=fused, by_hand=draw(st.booleans())), channels


def torch_attention(draw: st.DrawFn, channels: int) -> tuple[nn.Module, int]:
    heads, size = draw(st.integers(2, 3)), draw(st.integers(2, 3))
    inner = TorchAttention(heads * size, heads, weights=draw(st.booleans()))
    return nn.Sequential(
        nn.Linear(channels, heads * size), inner, nn.Linear(heads * size, channels)
    ), channels


def recurrent(draw: st.DrawFn, channels: int) -> tuple[nn.Module, int]:
    kind, hidden = draw(st.sampled_from([nn.LSTM, nn.GRU, nn.RNN])), draw(st.integers(2, 4))
    both = draw(st.booleans())
    layer = kind(
        channels,
        hidden,
        num_layers=draw(st.integers(1, 2)),
        bias=draw(st.booleans()),
        bidirectional=both,
        batch_first=True,
    )
    return Recurrent(layer), hidden * (2 if both else 1)


def over_time(draw: st.DrawFn, channels: int) -> tuple[nn.Module, int]:
    depthwise = draw(st.booleans())
    out = channels if depthwise else draw(st.integers(2, 5))
    inner = nn.Conv1d(channels, out, 3, padding=1, groups=channels if depthwise else 1)
    return OverTime(inner), out


SEQUENCES = Dialect(
    dim=2,
    point=nn.Linear,
    layers=[linear, attention, torch_attention, recurrent, over_time],
    norms=[lambda c: OverTime(nn.BatchNorm1d(c)), lambda c: Scaled(c, 2)],
    mixing=[
        nn.LayerNorm,
        nn.RMSNorm,
        lambda c: nn.Softmax(2),
        lambda c: MeanGate(2),
        lambda c: nn.Dropout(0.3),
    ],
)


# How blocks are put together.


def chain(draw: st.DrawFn, to: Dialect, channels: int, depth: int, *, mixing: bool) -> tuple[nn.Module, int]:
    """Draw a few blocks in a row."""
    blocks: list[nn.Module] = []
    for _ in range(draw(st.integers(1, 2 if depth else 1))):
        block, channels = draw(st.sampled_from(BLOCKS if depth else BLOCKS[:1]))(
            draw, to, channels, depth - 1, mixing=mixing
        )
        blocks.append(block)
    return nn.Sequential(*blocks), channels


def fitting(draw: st.DrawFn, to: Dialect, channels: int, out: int, depth: int, *, mixing: bool) -> nn.Module:
    """Draw a chain that ends in a layer of so many channels."""
    inner, width = chain(draw, to, channels, depth, mixing=mixing)
    return nn.Sequential(inner, to.point(width, out))


def layer(draw: st.DrawFn, to: Dialect, channels: int, depth: int, *, mixing: bool) -> tuple[nn.Module, int]:
    """Draw a layer, a norm perhaps, an activation."""
    made, channels = draw(st.sampled_from(to.layers))(draw, channels)
    norms = [nn.Identity, *to.norms, *(to.mixing if mixing else [])]
    norm = draw(st.sampled_from(norms))
    after = [] if norm is nn.Identity else [norm(channels)]
    return nn.Sequential(made, *after, draw(st.sampled_from(ACTIVATIONS))()), channels


def joined(draw: st.DrawFn, to: Dialect, channels: int, depth: int, *, mixing: bool) -> tuple[nn.Module, int]:
    how = draw(st.sampled_from(["cat", "add", "mul"]))
    branches: list[nn.Module] = []
    widths: list[int] = []
    skips = draw(st.booleans())
    if skips:
        branches.append(nn.Identity())
        widths.append(channels)
    out = channels if skips else draw(st.integers(2, 6))
    for _ in range(draw(st.integers(1, 2))):
        if how == "cat":
            branch, width = chain(draw, to, channels, depth, mixing=mixing)
        else:
            branch, width = fitting(draw, to, channels, out, depth, mixing=mixing), out
        branches.append(branch)
        widths.append(width)
    return Joined(branches, how, to.dim), sum(widths) if how == "cat" else out


def divided(
    draw: st.DrawFn, to: Dialect, channels: int, depth: int, *, mixing: bool
) -> tuple[nn.Module, int]:
    sizes = draw(st.sampled_from([(2, 2), (3, 3), (2, 3), (2, 2, 2), (4, 2)]))
    made = to.point(channels, sum(sizes))
    branches, widths = [], []
    for size in sizes:
        inner, width = draw(st.booleans()), size
        branch: nn.Module = nn.Identity()
        if inner:
            branch, width = chain(draw, to, size, depth, mixing=mixing)
        branches.append(branch)
        widths.append(width)
    return Divided(made, sizes, branches, to.dim, sliced=draw(st.booleans())), sum(widths)


def gated(draw: st.DrawFn, to: Dialect, channels: int, depth: int, *, mixing: bool) -> tuple[nn.Module, int]:
    out = draw(st.integers(2, 4))
    return Gated(to.point(channels, 2 * out), to.dim, written_out=draw(st.booleans())), out


def excited(
    draw: st.DrawFn, to: Dialect, channels: int, depth: int, *, mixing: bool
) -> tuple[nn.Module, int]:
    squeezed = draw(st.integers(2, 3))
    return Excited(to.point(channels, squeezed), to.point(squeezed, channels), to.dim), channels


def twice(draw: st.DrawFn, to: Dialect, channels: int, depth: int, *, mixing: bool) -> tuple[nn.Module, int]:
    return Twice(fitting(draw, to, channels, channels, depth, mixing=mixing)), channels


BLOCKS = [layer, joined, divided, gated, excited, twice]


# Whole nets.


class ImageNet(nn.Module):
    """Images [B, C, H, W] to scores [B, CLASSES]."""

    def __init__(self, stem: nn.Module, body: nn.Module, channels: int, *, flat: bool) -> None:
        super().__init__()
        self.stem, self.body, self.flat = stem, body, flat
        self.head = nn.Linear(channels * (4 if flat else 1), CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.stem(x))
        if self.flat:
            return self.head(functional.adaptive_avg_pool2d(x, 2).flatten(1))
        return self.head(x.amax(dim=(2, 3)))


class TextNet(nn.Module):
    """Tokens [B, T] to scores of the next token [B, T, V], with the embedding's own table if tied."""

    def __init__(
        self, channels: int, body: nn.Module, last: nn.Module, *, tied: str, positions: bool
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, channels)
        self.positions = nn.Parameter(torch.empty(STEPS, channels)) if positions else None
        self.body, self.last, self.tied = body, last, tied
        self.head = nn.Linear(channels, VOCABULARY) if tied != "by function" else None
        if self.head is not None and tied == "by module":
            self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        if self.positions is not None:
            x = x + self.positions[None, : tokens.shape[1]]
        x = self.last(self.body(x))
        return functional.linear(x, self.embed.weight) if self.head is None else self.head(x)


class SignalNet(nn.Module):
    """Sequences of vectors [B, T, C] to scores [B, CLASSES]."""

    def __init__(self, stem: nn.Module, body: nn.Module, channels: int, *, last: bool) -> None:
        super().__init__()
        self.stem, self.body, self.last = stem, body, last
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.stem(x))
        return self.head(x[:, -1] if self.last else x.mean(dim=1))


def randomize(model: nn.Module, seed: int) -> nn.Module:
    """Give every parameter and statistic a value that is not special; weights keep activations moderate."""
    rng = torch.Generator().manual_seed(seed)
    model = model.double()
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn(value.shape, generator=rng) / max(1, value[0].numel()) ** 0.5)
        for value in model.buffers():
            if value.is_floating_point():
                value.copy_(0.5 + torch.rand(value.shape, generator=rng))
    return model


@st.composite
def nets(draw: st.DrawFn, *, mixing: bool = True, depth: int = 2, remember: bool = False) -> Net:
    """Draw a net.

    Args:
        draw: Given by hypothesis.
        mixing: Whether it may have statistics over channels (layer norms, group norms, softmax, means) and
            dropout. Without them, a sub-model is exactly the model whose other coordinates are zero.
        depth: How deep blocks nest.
        remember: Whether it is one of sequences whose layers are all recurrent: else they are rare.
    """
    channels = draw(st.integers(2, 6))
    kind = draw(st.sampled_from(["text", "signal"] if remember else ["image", "image", "text", "signal"]))
    sequences = replace(SEQUENCES, layers=[recurrent]) if remember else SEQUENCES
    if kind == "image":
        inputs = draw(st.integers(1, 3))
        body, out = chain(draw, IMAGES, channels, depth, mixing=mixing)
        stem = nn.Conv2d(inputs, channels, 3, padding=1, bias=draw(st.booleans()))
        model: nn.Module = ImageNet(stem, body, out, flat=draw(st.booleans()))
        example = torch.randn(2, inputs, SIDE, SIDE, dtype=torch.float64)
    elif kind == "text":
        body, out = chain(draw, sequences, channels, depth, mixing=mixing)
        tied = draw(st.sampled_from(["no", "by module", "by function"]))
        last = nn.Linear(out, channels)
        model = TextNet(channels, body, last, tied=tied, positions=draw(st.booleans()))
        example = torch.zeros(2, STEPS, dtype=torch.long)
    else:
        inputs = draw(st.integers(1, 3))
        body, out = chain(draw, sequences, channels, depth, mixing=mixing)
        model = SignalNet(nn.Linear(inputs, channels), body, out, last=draw(st.booleans()))
        example = torch.randn(2, STEPS, inputs, dtype=torch.float64)
    model = randomize(model, draw(st.integers(0, 2**16)))
    return Net(model.train(draw(st.booleans())), example, draw(st.sampled_from(["whole", "inside"])))
