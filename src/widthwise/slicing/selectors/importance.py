"""The channels of largest magnitude."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from widthwise.core.records import SliceSpec, ascending
from widthwise.slicing.channels import of_channels
from widthwise.slicing.layout import groups_of
from widthwise.slicing.selectors.selector import Moment, Selector, sizes
from widthwise.slicing.space import WidthSpace


class Importance(Selector):
    """The ceil(width * C) channels of each group whose weights are largest in the current global model.

        score_c = sum of |w|^q over all coordinates on channel c, of all coupled axes;   q = 1 (l1) or 2 (l2)

    Ties go to the lower channel. All clients of a round rank alike, so narrower slices lie inside wider ones.

    Source: Li et al. 2017, arXiv 1608.08710, section 3.1 (l1 norm of a filter); Fang et al. 2023 (DepGraph),
    arXiv 2301.12900, section 3.4 (norm over coupled parameters). Departs: the ranking is made anew each
    round, on the server, and nothing is removed from the global model.

    Attributes:
        importance_norm: ``l1`` or ``l2``; the root of the latter is left out, it keeps the order.
    """

    note: ClassVar[str] = (
        "which channels the narrower clients train follows the magnitudes of the weights: below full width, "
        "none is certain to be trained."
    )
    shipped: ClassVar[str] = (
        "those ceil(w * C) channels of each group of C channels whose weights have the largest norm in the "
        "trained model"
    )

    importance_norm: Literal["l1", "l2"] = "l2"

    def select(self, space: WidthSpace, width: float, moment: Moment) -> SliceSpec:
        """Return the slice of the round's global model."""
        return self.ship(space, width, moment.params)

    def ship(self, space: WidthSpace, width: float, params: Mapping[str, Tensor]) -> SliceSpec:
        """Return the slice of the most important channels."""
        kept = {}
        for group, (k, count) in sizes(space, width).items():
            order = self.scores(space, group, params).argsort(descending=True, stable=True)
            kept[group] = range(count) if k == count else ascending(order[:k].tolist())
        return SliceSpec(width, kept)

    def scores(self, space: WidthSpace, group: str, params: Mapping[str, Tensor]) -> Tensor:
        """Return [C] the score of each channel of a group, in float64."""
        counts = {g.name: g.size for g in space.groups}
        scores = torch.zeros(counts[group], dtype=torch.float64)
        power = 1 if self.importance_norm == "l1" else 2
        for name, layout in space.parameters.items():
            for dim, axis in enumerate(layout.axes):
                if group in groups_of(axis):
                    weights = params[name].detach().double().abs().pow(power).movedim(dim, 0)
                    positions = weights.reshape(len(weights), -1).sum(1)
                    scores += of_channels(axis, group, counts).double() @ positions
        return scores
