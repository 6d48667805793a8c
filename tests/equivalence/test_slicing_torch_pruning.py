"""Our channel groups against those of torch-pruning (Fang et al. 2023, DepGraph).

It finds them another way: it follows autograd's graph between layers of known classes, we follow operations.
Where it is right, both must say the same: which positions of which axes of which tensors go together with a
channel of a layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest
import torch
import torch_pruning
from torch import Tensor, nn
from torch.nn import functional

from widthwise.core.records import SliceSpec, ascending
from widthwise.slicing import WidthSpace, trace
from widthwise.tasks.dataset import Signature
from widthwise.tasks.models import MODELS

Coupled = dict[tuple[str, int], set[int]]
"""(tensor, axis) -> positions that must go together."""

LAYERS = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d, nn.Linear)
HEAD = "head"  # name of each model's last layer, whose rows are the output and are never cut


def ours(space: WidthSpace, group: str, channel: int) -> Coupled:
    """Return what goes with a channel: whatever a slice without it, and with all others, does not keep."""
    everything = {g.name: range(g.size) for g in space.groups}
    kept = {**everything, group: ascending(set(everything[group]) - {channel})}
    tensors = [*space.parameters.values(), *space.buffers.values()]
    ones = {layout.tensor.name: torch.ones(layout.shape) for layout in tensors}
    left = {name: torch.zeros_like(value) for name, value in ones.items()}
    spec = SliceSpec(0.5, kept)
    space.scatter_add_(left, space.take(ones, spec), spec)
    gone: Coupled = {}
    for name, value in left.items():
        for axis in range(value.ndim):
            empty = (value.movedim(axis, 0).reshape(value.shape[axis], -1) == 0).all(dim=1)
            if empty.any():
                gone[name, axis] = set(empty.nonzero().flatten().tolist())
    return gone


class Theirs:
    """torch-pruning's dependency graph of a model."""

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        self.model = model
        self.graph = torch_pruning.DependencyGraph()
        self.graph.build_dependency(model.eval(), example)
        self.names = {module: name for name, module in model.named_modules()}
        self.names.update({parameter: name for name, parameter in model.named_parameters()})

    def coupled(self, layer: nn.Module, channel: int) -> Coupled:
        """Return what goes with an output channel of a layer."""
        prune = self.graph.get_pruner_of_module(layer).prune_out_channels
        gone: Coupled = defaultdict(set)
        for dependency, positions in self.graph.get_pruning_group(layer, prune, [channel]):
            target = dependency.target.module
            for name, axis in self.axes(target, dependency.handler.__name__ == "prune_in_channels"):
                gone[name, axis].update(positions)
        return dict(gone)

    def axes(self, module: nn.Module, inputs: bool) -> list[tuple[str, int]]:
        """Return the axes that are cut with the input or the output channels of a layer."""
        if module not in self.names:  # an operation without tensors
            return []
        name = self.names[module]
        if isinstance(module, nn.Parameter):
            return [(name, module.ndim - 1)]
        if isinstance(module, LAYERS) and inputs:
            return [(f"{name}.weight", 0 if isinstance(module, nn.ConvTranspose2d) else 1)]
        found = [(f"{name}.{own}", 0) for own, value in module.state_dict().items() if value.ndim]
        if isinstance(module, nn.ConvTranspose2d):
            found[0] = (f"{name}.weight", 1)
        return found


def convolution(inputs: int, outputs: int, kernel: int = 3, **options: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, **options), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class Vgg(nn.Module):
    """Stacked convolutions, a flattened image, two hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            convolution(3, 6), nn.MaxPool2d(2), convolution(6, 8), convolution(8, 5), nn.MaxPool2d(2)
        )
        self.classifier = nn.Sequential(nn.Linear(20, 9), nn.ReLU(), nn.Dropout(), nn.Linear(9, 7), nn.ReLU())
        self.head = nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.classifier(self.features(x).flatten(1)))


class Dense(nn.Module):
    """Each layer sees all earlier ones; a transition between two such blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.transition = convolution(3, 6), convolution(6 + 4 + 5, 8, kernel=1)
        self.first, self.second = convolution(6, 4), convolution(10, 5)
        self.third = convolution(8, 4)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.cat([x, self.first(x)], dim=1)
        x = functional.avg_pool2d(self.transition(torch.cat([x, self.second(x)], dim=1)), 2)
        return self.head(torch.cat([x, self.third(x)], dim=1).mean(dim=(2, 3)))


class Inception(nn.Module):
    """Four parallel branches that are joined, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([self.block(3), self.block(12)])
        self.head = nn.Linear(12, 3)

    def block(self, inputs: int) -> nn.ModuleList:
        return nn.ModuleList(
            [
                convolution(inputs, 2, 1),
                nn.Sequential(convolution(inputs, 3, 1), convolution(3, 4)),
                nn.Sequential(convolution(inputs, 2, 1), convolution(2, 3), convolution(3, 3)),
                nn.Sequential(nn.AvgPool2d(3, 1, 1), convolution(inputs, 3, 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.cat([branch(x) for branch in block], dim=1)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class UNet(nn.Module):
    """Down, up by transposed convolutions, skips that are joined."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = convolution(3, 4), convolution(4, 6), convolution(6, 8)
        self.up_b, self.up_a = nn.ConvTranspose2d(8, 6, 2, 2), nn.ConvTranspose2d(6, 4, 2, 2)
        self.d, self.e = convolution(12, 6), convolution(8, 5)
        self.head = nn.Conv2d(5, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        b = self.b(functional.max_pool2d(a, 2))
        c = self.c(functional.max_pool2d(b, 2))
        b = self.d(torch.cat([self.up_b(c), b], dim=1))
        return self.head(self.e(torch.cat([self.up_a(b), a], dim=1)))


class Shared(nn.Module):
    """One layer that runs three times, residual, between two others."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.again = convolution(3, 6), convolution(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for _ in range(3):
            x = x + self.again(x)
        return self.head(x.mean(dim=(2, 3)))


class Excited(nn.Module):
    """Channels scaled by a function of their means (squeeze and excite)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = convolution(3, 8), convolution(8, 5)
        self.down, self.up = nn.Conv2d(8, 3, 1), nn.Conv2d(3, 8, 1)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x * self.up(self.down(functional.adaptive_avg_pool2d(x, 1)).relu()).sigmoid()
        return self.head(self.last(x).mean(dim=(2, 3)))


class Mixer(nn.Module):
    """Linear layers with layer norms and residual connections on a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Linear(3, 6), nn.LayerNorm(6)
        self.wide, self.narrow = nn.Linear(6, 10), nn.Linear(10, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.flatten(2).transpose(1, 2))
        x = x + self.narrow(functional.gelu(self.wide(self.norm(x))))
        return self.head(x.mean(dim=1))


class Gated(nn.Module):
    """One half of a layer's channels is the gate of the other half."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.wide = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 10, 1)
        self.head = nn.Conv2d(5, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.wide(self.stem(x).relu()).chunk(2, dim=1)
        return self.head(value * gate.sigmoid())


class Halves(nn.Module):
    """Each half of a layer's channels goes its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 10, 1)
        self.one, self.other = nn.Conv2d(5, 4, 1), nn.Conv2d(5, 4, 1)
        self.head = nn.Conv2d(4, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.wide(x).chunk(2, dim=1)
        return self.head(self.one(one) + self.other(other))


class Grouped(nn.Module):
    """A convolution of three groups."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.grouped = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 12, 1, groups=3)
        self.head = nn.Conv2d(12, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.grouped(self.stem(x)).relu())


class ChannelsLast(nn.Module):
    """An image that is flattened position by position."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 6, 1), nn.Linear(6 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.stem(x), 2).permute(0, 2, 3, 1).flatten(1))


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one, self.other = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 5, 1), nn.Conv2d(4, 5, 1)
        self.other.weight = self.one.weight
        self.head = nn.Conv2d(10, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(torch.cat([self.one(x), self.other(x)], dim=1))


class Fused(nn.Module):
    """Attention of two heads of four dimensions, its three projections in one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.qkv, self.out = nn.Linear(3, 8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.flatten(2).transpose(1, 2))
        q, k, v = self.qkv(x).view(x.shape[0], -1, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.head((x + self.out(y.transpose(1, 2).flatten(2))).mean(dim=1))


class Multihead(nn.Module):
    """torch's own attention with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.flatten(2).transpose(1, 2))
        return self.head((x + self.attention(x, x, x, need_weights=False)[0]).mean(dim=1))


class Recurrent(nn.Module):
    """An LSTM whose states are added to a layer's channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.rnn = nn.Linear(3, 5), nn.LSTM(5, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.flatten(2).transpose(1, 2))
        return self.head((x + self.rnn(x)[0]).mean(dim=1))


SIGNATURE = Signature("image", (3, 8, 8), 3)


def registered(name: str, scale: float) -> Callable[[], nn.Module]:
    return lambda: MODELS[name].value(norm="batch", scale=scale).module(SIGNATURE)


def made(build: Callable[[], nn.Module]) -> tuple[nn.Module, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build().eval(), torch.randn(2, *SIGNATURE.shape)


SAME: dict[str, Callable[[], nn.Module]] = {
    "resnet18": registered("resnet18", 1 / 16),  # residual connections, with layers on the shortcuts
    "resnet20": registered("resnet20", 1 / 4),
    "mobilenetv2": registered("mobilenetv2", 1 / 4),  # depthwise convolutions
    "vgg": Vgg,
    "dense": Dense,
    "inception": Inception,
    "unet": UNet,
    "shared": Shared,
    "excited": Excited,
    "mixer": Mixer,
    "gated": Gated,
}


@pytest.mark.parametrize("name", SAME)
def test_channel_groups_are_those_of_torch_pruning(name: str) -> None:
    model, example = made(SAME[name])
    space, theirs = trace(model, example, check=False), Theirs(model, example)
    *_, head = layers = [module for module in model.modules() if isinstance(module, LAYERS)]
    rows = {
        (f"{theirs.names[layer]}.weight", int(isinstance(layer, nn.ConvTranspose2d))): layer
        for layer in layers
    }
    seen = set()
    for group in space.groups:
        for channel in {0, group.size - 1}:
            gone = ours(space, group.name, channel)
            starts = sorted(gone.keys() & rows.keys())
            for start in {starts[0], starts[-1]}:
                assert theirs.coupled(rows[start], min(gone[start])) == gone
        seen.update(starts)
    assert [rows[row] for row in rows.keys() - seen] == [head]  # nothing is missing but the classes


# Where they differ. Each entry: a layer's channel, and on some axis what goes with it here and there.
DIFFERENT: dict[str, tuple[Callable[[], nn.Module], str, tuple[str, int], set[int], set[int]]] = {
    # Both are right. Here equal pieces of an axis are cut alike, so that `chunk` finds them in a slice too.
    "halves": (Halves, "wide", ("wide.weight", 0), {0, 5}, {0}),
    # A group that loses a channel differs from the others in size, and then no convolution runs (their pruner
    # takes a channel from each group afterwards). Here whole groups go.
    "grouped": (Grouped, "stem", ("stem.weight", 0), {0, 1}, {0}),
    # They take each flattened image for one with channels outermost, and so cut other channels' columns.
    "channels last": (ChannelsLast, "stem", ("head.weight", 1), {0, 6, 12, 18}, {0, 1, 2, 3}),
    # They know layers, not tensors: the second layer keeps the channel, and the weights are tied no more.
    "tied": (Tied, "one", ("head.weight", 1), {0, 5}, {0}),
    # A dimension of the first head goes, and its heads are no longer of one size. Here whole heads go.
    "heads": (Fused, "qkv", ("qkv.weight", 0), {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19}, {0, 8, 16}),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_channel_groups_differ_from_torch_pruning_where_stated(name: str) -> None:
    build, layer, axis, here, there = DIFFERENT[name]
    model, example = made(build)
    space = trace(model, example)  # checked: a slice is the masked model
    assert Theirs(model, example).coupled(model.get_submodule(layer), 0)[axis] == there
    assert ours(space, layer, 0)[axis] == here


def pruned(model: nn.Module, example: Tensor, channels: list[int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes that torch-pruning leaves without these channels of the stem."""
    graph = Theirs(model, example).graph
    graph.get_pruning_group(model.stem, torch_pruning.prune_linear_out_channels, channels).prune()
    return {name: tuple(value.shape) for name, value in model.named_parameters()}


def test_attention_heads_are_independent_of_the_residual_stream_unlike_in_torch_pruning() -> None:
    # There, embedding and heads are one: channels of the stream take rows of the same numbers from the
    # projections, here both from the first head, and the rest is dealt to heads of another size.
    model, example = made(Multihead)
    space = trace(model, example)
    spec = SliceSpec(0.75, {"stem": range(2, 8), "attention": range(2)})
    assert space.shapes(spec)["attention.in_proj_weight"] == (24, 6)
    assert pruned(model, example, [0, 1])["attention.in_proj_weight"] == (18, 6)


def test_recurrent_rows_are_cut_in_each_gate_unlike_in_torch_pruning() -> None:
    # There, the rows of the first gate are cut twice and those of the others are lost.
    model, example = made(Recurrent)
    space = trace(model, example)
    assert ours(space, "stem", 0)["rnn.weight_hh_l0", 0] == {0, 5, 10, 15}
    with pytest.raises(IndexError, match="out of range"):
        pruned(model, example, [0])
