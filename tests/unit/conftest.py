"""A width space written out by hand, so that floor-1 rooms are tested without the tracer."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from widthwise.core.params import Params, clone
from widthwise.core.records import ClientTask, LocalConfig, SliceSpec

Axes = Mapping[str, tuple[str | None, ...]]


@dataclass(frozen=True)
class ToySpace:
    """``axes`` names the channel group of every axis; ``build`` makes a module of given group sizes."""

    build: Callable[[Mapping[str, int]], nn.Module]
    sizes: Mapping[str, int]
    axes: Axes
    linear_weights: ClassVar[frozenset[str]] = frozenset()

    def nested(self, width: float) -> SliceSpec:
        kept = {group: range(math.ceil(width * size)) for group, size in self.sizes.items()}
        return SliceSpec(width, kept)

    def take(self, tensors: Mapping[str, Tensor], spec: SliceSpec) -> Params:
        return {name: value[self._index(name, spec)] for name, value in tensors.items()}

    def take_within(self, tensors: Mapping[str, Tensor], outer: SliceSpec, spec: SliceSpec) -> Params:
        return self.take(tensors, spec)  # nested from 0: positions inside outer are global positions

    def scatter_add_(
        self, into: Params, values: Mapping[str, Tensor], spec: SliceSpec, scale: float = 1.0
    ) -> None:
        for name, value in values.items():
            into[name][self._index(name, spec)] += scale * value

    def module(self, spec: SliceSpec) -> nn.Module:
        return self.build({group: len(kept) for group, kept in spec.kept.items()})

    def _index(self, name: str, spec: SliceSpec) -> tuple[slice, ...]:
        groups = self.axes.get(name, ())
        return tuple(slice(None) if g is None else slice(len(spec.kept[g])) for g in groups)


class ToyData:
    """Samples in memory."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], self.targets[indices]


class Bowl(nn.Module):
    """f(w) = mean over samples of 0.5 * sum_j a_j (w_j - b_j)^2; one sample is the row (a, b)."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(sizes["w"], dtype=torch.float64))

    def forward(self, rows: Tensor) -> Tensor:
        a, b = (part[:, : len(self.w)] for part in rows.chunk(2, dim=1))
        return 0.5 * (a * (self.w - b) ** 2).sum(dim=1)


def _mlp(sizes: Mapping[str, int]) -> nn.Module:
    layers = {"a": nn.Linear(3, sizes["h"]), "relu": nn.ReLU(), "b": nn.Linear(sizes["h"], 4)}
    return nn.Sequential(OrderedDict(layers)).double()


def _dropout_net(sizes: Mapping[str, int]) -> nn.Module:
    layers = {"a": nn.Linear(3, sizes["h"]), "drop": nn.Dropout(0.5), "b": nn.Linear(sizes["h"], 4)}
    return nn.Sequential(OrderedDict(layers)).double()


def _conv_net(sizes: Mapping[str, int]) -> nn.Module:
    layers = {
        "conv": nn.Conv2d(1, sizes["h"], 3),
        "norm": nn.BatchNorm2d(sizes["h"]),
        "relu": nn.ReLU(),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flat": nn.Flatten(),
        "b": nn.Linear(sizes["h"], 4),
    }
    return nn.Sequential(OrderedDict(layers))


_LINEAR: Axes = {"a.weight": ("h", None), "a.bias": ("h",), "b.weight": (None, "h"), "b.bias": (None,)}
_CONV: Axes = {
    "conv.weight": ("h", None, None, None),
    "b.weight": (None, "h"),
    **dict.fromkeys(("conv.bias", "norm.weight", "norm.bias"), ("h",)),
    **dict.fromkeys(("norm.running_mean", "norm.running_var"), ("h",)),
}
_SPACES = {
    "mlp": ToySpace(_mlp, {"h": 8}, _LINEAR),
    "dropout": ToySpace(_dropout_net, {"h": 8}, _LINEAR),
    "conv": ToySpace(_conv_net, {"h": 8}, _CONV),
    "bowl": ToySpace(Bowl, {"w": 4}, {"w": ("w",)}),
}


@dataclass(frozen=True)
class Toy:
    """A space, global parameters and buffers, data, and tasks on them."""

    space: ToySpace
    params: Params
    buffers: Params
    data: ToyData

    def task(
        self,
        width: float,
        *,
        context: float | None = None,
        state: Mapping[str, Params] | None = None,
        seed: int = 7,
        client: int = 3,
        **config: object,
    ) -> ClientTask:
        """Return what the server would send; ``state`` is in global shapes, ``config`` changes defaults."""
        spec = self.space.nested(width)
        outer = self.space.nested(width if context is None else context)
        defaults = {"local_epochs": 1, "batch_size": 4, "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
        local = LocalConfig(**{**defaults, "clip_norm": None, **config})  # type: ignore[arg-type]
        return ClientTask(
            client_id=client,
            round_index=5,
            spec=spec,
            context_spec=outer,
            capacity=outer.width,
            params=self.space.take(self.params, outer),
            buffers=self.space.take(self.buffers, outer),
            state={name: self.space.take(value, spec) for name, value in (state or {}).items()},
            config=local,
            seed=seed,
        )


def _data(name: str) -> ToyData:
    rng = torch.Generator().manual_seed(1)
    if name == "bowl":
        rows = torch.rand(6, 8, generator=rng, dtype=torch.float64) + 0.5
        return ToyData(rows, torch.zeros(6))
    shape = (1, 6, 6) if name == "conv" else (3,)
    dtype = torch.float32 if name == "conv" else torch.float64
    inputs = torch.randn(10, *shape, generator=rng, dtype=dtype)
    return ToyData(inputs, torch.randint(4, (10,), generator=rng))


@pytest.fixture
def make_toy() -> Callable[[str], Toy]:
    """Return a builder of toys: "mlp", "dropout", "conv" (with batch norm) or "bowl" (a quadratic)."""

    def make(name: str) -> Toy:
        space = _SPACES[name]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            module = space.module(space.nested(1.0))
        params, buffers = clone(dict(module.named_parameters())), clone(dict(module.named_buffers()))
        return Toy(space, params, buffers, _data(name))

    return make


class Page(HTMLParser):
    """Tags and attributes of a page, and whether every element is closed."""

    VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def attributes(self, name: str) -> list[str]:
        return [attrs[name] for _, attrs in self.tags if attrs.get(name)]


@pytest.fixture(scope="session")
def parse() -> type[Page]:
    """Return the parser that shows the tags of a page and whether every element is closed."""
    return Page
