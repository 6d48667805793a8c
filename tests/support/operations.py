"""What forwards of a few lines must give when they are cut, by two oracles that know no rule of the tracer.

The forwards themselves are in ``operations_axes``, ``operations_images`` and ``operations_products``.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from widthwise.core.records import SliceSpec
from widthwise.slicing import WidthSpace, trace

Forward = Callable[[Any, Tensor], Tensor]


class Net(nn.Module):
    """Layers and parameters by name, and a forward that is a function of them."""

    def __init__(
        self, forward: Callable[[Any, Tensor], Tensor], parts: dict[str, nn.Module | Tensor]
    ) -> None:
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            else:
                self.register_parameter(name, nn.Parameter(part))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


@dataclass(frozen=True)
class Case:
    """A forward with what it must give.

    Attributes:
        forward: The forward, of a net and its input.
        parts: Makes its layers and parameters.
        shape: Shape of the input, batch first.
        groups: Group name -> number of channels.
        heads: What is cut of axes that are regrouped.
        oracle: ``masked``: the full model whose dropped coordinates are zero. ``own``: the forward itself on
            the kept parameters, where it depends on how many there are (and names none of their sizes).
    """

    forward: Forward
    parts: Callable[[], dict[str, nn.Module | Tensor]]
    shape: tuple[int, ...]
    groups: dict[str, int]
    heads: Literal["whole", "inside"] = "whole"
    oracle: Literal["masked", "own"] = "masked"

    def net(self) -> Net:
        """Return the model, in double precision."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return Net(self.forward, self.parts()).double().eval()


class Cases(dict[str, Case]):
    """Cases by the names of their forwards."""

    def add(
        self, shape: tuple[int, ...], groups: dict[str, int], parts: Callable[[], Any], **rest: Any
    ) -> Any:
        """Register the decorated forward."""

        def register(forward: Forward) -> Forward:
            name = forward.__name__ + ("_inside" if rest.get("heads") == "inside" else "")
            assert name not in self
            self[name] = Case(forward, parts, shape, groups, **rest)
            return forward

        return register


def specs(space: WidthSpace) -> Iterator[SliceSpec]:
    """Yield nested specs, and such of any channels, another number of each group."""
    for width in (0.25, 0.5, 0.75):
        yield space.nested(width)
    draw = random.Random(1)
    for _ in range(3):
        kept = {
            group.name: tuple(sorted(draw.sample(range(group.size), draw.randint(1, group.size))))
            for group in space.groups
        }
        yield SliceSpec(0.5, kept)


def check(case: Case) -> None:
    """Assert that the groups are the expected ones and that sub-models equal the oracle."""
    model, x = (
        case.net(),
        torch.randn(case.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)),
    )
    space = trace(model, x, heads=case.heads)
    groups = {group.name: group.size for group in space.groups}
    assert groups == case.groups, f"the groups are {groups}"
    torch.testing.assert_close(space.extract(model, space.full()).eval()(x), model(x), rtol=0, atol=0)
    for spec in specs(space):
        sub = space.extract(model, spec).eval()
        if case.oracle == "own":
            expected = functional_call(
                model, {**dict(sub.named_parameters()), **dict(sub.named_buffers())}, (x,)
            )
        else:
            expected = masked(model, space, spec)(x)
        torch.testing.assert_close(
            sub(x), expected, rtol=0, atol=1e-9, msg=lambda text, spec=spec: f"{spec}: {text}"
        )


def masked(model: nn.Module, space: WidthSpace, spec: SliceSpec) -> nn.Module:
    """Return the full model whose dropped coordinates are zero."""
    result = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in result.named_parameters():
            parameter.mul_(space.mask(spec)[name])
    return result
