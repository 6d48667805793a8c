"""What a round has not trained because clients were missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from widthwise.core.errors import some
from widthwise.core.params import Params
from widthwise.core.records import SliceSpec, ascending
from widthwise.slicing import WidthSpace

NAMED = 4
"""Parameters and groups that the sentence names at most."""


@dataclass(frozen=True)
class Untrained:
    """Coordinates that a plan gave to clients, and that no client has trained.

    Attributes:
        share: Of all coordinates of the model.
        parameters: Parameter -> share of its coordinates; those with any.
        groups: Channel group -> its channels that no client has trained; those with any.
    """

    share: float
    parameters: dict[str, float]
    groups: dict[str, Sequence[int]]

    def __str__(self) -> str:
        groups = [f"{_channels(kept)} of {name}" for name, kept in self.groups.items()]
        parameters = [f"{share:.1%} of {name}" for name, share in self.parameters.items()]
        where = f"channels {_listed(groups)}; {_listed(parameters)}"
        return f"{self.share:.1%} of the coordinates went untrained ({where})"


def untrained(space: WidthSpace, planned: Sequence[SliceSpec], trained: Sequence[SliceSpec]) -> Untrained:
    """Return what ``planned`` holds and ``trained`` does not.

    Args:
        space: The width space.
        planned: The slices of the plan.
        trained: Those that were trained.
    """
    wanted, done = _held(space, planned), _held(space, trained)
    lost = {name: int((wanted[name] & ~done[name]).sum()) for name in wanted}
    groups = {
        group.name: ascending(missing)
        for group in space.groups
        if (missing := _kept(planned, group.name) - _kept(trained, group.name))
    }
    return Untrained(
        share=sum(lost.values()) / sum(mask.numel() for mask in wanted.values()),
        parameters={name: count / wanted[name].numel() for name, count in lost.items() if count},
        groups=groups,
    )


def _held(space: WidthSpace, specs: Sequence[SliceSpec]) -> Params:
    held = {n: torch.zeros(layout.shape, dtype=torch.bool) for n, layout in space.parameters.items()}
    masked = [spec for spec in specs if spec.mask]
    whole = {spec.key(): spec for spec in specs if not spec.mask}
    for spec in [*whole.values(), *masked]:
        kept = spec.mask.kept if spec.mask else {}
        for name, mask in space.mask(spec).items():
            held[name] |= mask & kept[name] if name in kept else mask
    return held


def _kept(specs: Sequence[SliceSpec], group: str) -> set[int]:
    return {channel for spec in specs for channel in spec.kept[group]}


def _channels(kept: Sequence[int]) -> str:
    return f"{kept[0]}-{kept[-1]}" if isinstance(kept, range) else f"{len(kept)} single ones"


def _listed(texts: Sequence[str]) -> str:
    return some(texts, NAMED) or "none"
