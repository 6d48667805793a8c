"""Which channels a width keeps: the base of all selectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from widthwise.core.params import Params
from widthwise.core.records import SliceSpec
from widthwise.core.seeds import SeedTree
from widthwise.core.traits import Trait
from widthwise.slicing.space import WidthSpace


@dataclass(frozen=True)
class Moment:
    """For whom and when channels are chosen.

    Attributes:
        client_id: The client.
        round_index: The round, from 0.
        seeds: Root of the selector's random streams, the same in all rounds.
        params: The global parameters at the start of the round.
    """

    client_id: int
    round_index: int
    seeds: SeedTree
    params: Mapping[str, Tensor]


class Selector(BaseModel):
    """Base of all channel selectors.

    A selector is a pure function of space, width and moment, so a resumed run and every executor meet the
    same slices. It keeps as many channels of each group as the nested slice of the width does, and coupled
    axes are cut alike. For one client and round, the slice of a width lies inside that of every larger one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: What users must know about the slices beside their cost and reach; one sentence, or nothing.
    note: ClassVar[str] = ""
    #: What ``ship`` gives at a width, as the end of "What is shipped at width w is ...".
    shipped: ClassVar[str] = "the leading ceil(w * C) channels of each group of C channels"

    @property
    def traits(self) -> frozenset[Trait]:
        """What other parts may rely on."""
        return frozenset({Trait.DENSE, Trait.COMMON})

    @abstractmethod
    def select(self, space: WidthSpace, width: float, moment: Moment) -> SliceSpec:
        """Return the slice that a client trains.

        Raises:
            SliceError: if the width is not in (0, 1].
        """

    def ship(self, space: WidthSpace, width: float, params: Mapping[str, Tensor]) -> SliceSpec:
        """Return the slice of the trained model that stands for a width: what tiers are evaluated on.

        The leading channels, unless the selector says which of a trained model matter.
        """
        return space.nested(width)

    def reach(self, space: WidthSpace, width: float) -> Params:
        """Return which coordinates clients of at most this width can ever train (bool, global shapes)."""
        return {name: torch.ones(layout.shape, dtype=torch.bool) for name, layout in space.parameters.items()}


def sizes(space: WidthSpace, width: float) -> dict[str, tuple[int, int]]:
    """Return (channels kept at a width, all channels) of each group."""
    kept = space.nested(width).kept
    return {group.name: (len(kept[group.name]), group.size) for group in space.groups}
