"""A window of channels that moves from round to round."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from widthwise.core.params import Params
from widthwise.core.records import SliceSpec, ascending
from widthwise.slicing.channels import union
from widthwise.slicing.selectors.selector import Moment, Selector, sizes
from widthwise.slicing.space import ParamLayout, WidthSpace

_ROUNDS_AT_ONCE = 512


class Rolling(Selector):
    """In round t, k = ceil(width * C) channels of a group of C from start(t) on, wrapping around at C.

        start(t) = roll_step * t mod C     (forward),     -roll_step * t mod C     (backward)

    All clients of a round start at the same channel, so that narrower windows lie inside wider ones.

    Source: Alam et al. 2022 (FedRolex), arXiv 2212.01548, section 3: forward, one channel a
    round. The released code rolls the order of the channels instead of the window, so that there the window
    moves backward. The two differ by a relabelling of channels, which at random initial weights means
    nothing. Departs: no.

    The windows of all groups move together. What joins channel i of one layer to channel j of the next is
    therefore trained only if both windows hold them in the same round: with layers of equal size C, only
    where i and j are less than k apart. ``reach`` computes that, and ``widthwise coverage`` shows it: a fleet
    without a full-width client rolls over every channel, but not over every weight.

    Attributes:
        roll_step: Channels by which the window moves in a round.
        roll_direction: Towards higher channels (``forward``) or lower ones.
    """

    shipped: ClassVar[str] = (
        "the leading ceil(w * C) channels of each group of C channels; clients trained windows that moved "
        "from round to round, and none of them this slice as such"
    )

    roll_step: int = Field(1, ge=1)
    roll_direction: Literal["forward", "backward"] = "forward"

    def select(self, space: WidthSpace, width: float, moment: Moment) -> SliceSpec:
        """Return the round's window."""
        kept = {
            group: ascending((self._start(moment.round_index, count) + i) % count for i in range(k))
            for group, (k, count) in sizes(space, width).items()
        }
        return SliceSpec(width, kept)

    def reach(self, space: WidthSpace, width: float) -> Params:
        """Return the union of all windows over the rounds after which they repeat."""
        counts = sizes(space, width)
        return {name: self._reach(layout, counts) for name, layout in space.parameters.items()}

    def _reach(self, layout: ParamLayout, counts: dict[str, tuple[int, int]]) -> Tensor:
        reached = torch.full(layout.shape, not layout.groups)
        period = math.lcm(*(counts[group][1] for group in layout.groups))
        for first in range(0, period, _ROUNDS_AT_ONCE):
            if bool(reached.all()):
                break
            rounds = range(first, min(first + _ROUNDS_AT_ONCE, period))
            windows = {group: self._windows(rounds, *counts[group]) for group in layout.groups}
            reached = reached | union(layout, windows)
        return reached

    def _windows(self, rounds: range, k: int, count: int) -> Tensor:
        """Return [T, C] which channels the window holds in each round."""
        starts = torch.tensor([self._start(t, count) for t in rounds])
        return (torch.arange(count) - starts[:, None]) % count < k

    def _start(self, round_index: int, count: int) -> int:
        sign = 1 if self.roll_direction == "forward" else -1
        return sign * self.roll_step * round_index % count
