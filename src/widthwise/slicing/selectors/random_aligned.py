"""Channels drawn at random."""

from __future__ import annotations

from typing import ClassVar

from widthwise.core.records import SliceSpec, ascending
from widthwise.core.traits import Trait
from widthwise.slicing.selectors.selector import Moment, Selector, sizes
from widthwise.slicing.space import WidthSpace


class RandomAligned(Selector):
    """ceil(width * C) channels of each group, drawn without replacement, anew for each client and round.

    Drawn once for a group, so all axes that must be cut together are, and residual connections add the same
    channels. (Baselines in released code that draw for each layer on its own do not.) The draw is the head of
    a shuffle of the channels: the slices that one client could train in a round lie inside each other.

    Source: Caldas et al. 2018 (Federated Dropout), arXiv 1812.07210. Departs: capacities may
    differ; the paper drops the same share for everybody.

    Attributes:
        shared_draw: All clients of a round share one shuffle.
    """

    shipped: ClassVar[str] = (
        "the leading ceil(w * C) channels of each group of C channels; clients trained channels drawn at "
        "random, and none of them this slice as such"
    )

    shared_draw: bool = False

    @property
    def traits(self) -> frozenset[Trait]:
        """Dense; slices of a round have a common core where the shuffle is shared."""
        return frozenset({Trait.DENSE, Trait.COMMON} if self.shared_draw else {Trait.DENSE})

    def select(self, space: WidthSpace, width: float, moment: Moment) -> SliceSpec:
        """Return the draw of the client, or of the round."""
        seeds = moment.seeds.at(moment.round_index)
        rng = (seeds if self.shared_draw else seeds.at(moment.client_id)).numpy()
        kept = {
            group: ascending(rng.permutation(count)[:k].tolist())
            for group, (k, count) in sizes(space, width).items()
        }
        return SliceSpec(width, kept)
