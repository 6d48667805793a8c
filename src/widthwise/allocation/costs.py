"""What a width costs, as plain data: policies keep a budget in it without knowing any model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Currency = Literal["width", "params", "macs", "bytes"]

_SAME = 1e-12
"""A width this little above a step is on it: 0.30000000000000004 costs what 0.3 costs."""


class Costs:
    """The cost of a width is the width itself: a staircase whose steps are infinitely small."""

    @property
    def largest_step(self) -> float:
        """The most that the cost of one client can change at once."""
        return 0.0

    def snap(self, widths: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest widths that cost the same."""
        return widths

    def of(self, clients: Sequence[int], widths: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what each client costs at its width, both [n]."""
        return widths


@dataclass(frozen=True)
class Staircase(Costs):
    """Costs that change only where a sub-model gains a channel: client i pays rint(rows[kind_i] * scale_i).

    Shapes: N registered clients, R kinds of clients, K steps, n clients of a cohort.

    Attributes:
        levels: [K] the widths at which a step ends, ascending, the last being 1.
        rows: [R, K] the cost of a kind of client at widths above the level before and up to this one.
        kind: [N] the row of each client.
        scale: [N] what its costs are multiplied by.

    Example:
        >>> rows, kind, scale = np.array([[10.0, 40.0]]), np.array([0, 0]), np.array([1, 2])
        >>> stairs = Staircase(np.array([0.5, 1.0]), rows, kind, scale)
        >>> stairs.of([0, 1], np.array([0.5, 0.51])).tolist()
        [10.0, 80.0]
    """

    levels: NDArray[np.float64]
    rows: NDArray[np.float64]
    kind: NDArray[np.intp]
    scale: NDArray[np.int64]

    @property
    def largest_step(self) -> float:
        """The most that the cost of one client can change at once."""
        scale = np.zeros(len(self.rows), dtype=np.int64)
        np.maximum.at(scale, self.kind, self.scale)
        return float(np.abs(np.diff(np.rint(self.rows * scale[:, None]), axis=1)).max(initial=0.0))

    def snap(self, widths: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest widths that cost the same."""
        return self.levels[self._step(widths)]

    def of(self, clients: Sequence[int], widths: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what each client costs at its width, both [n]."""
        chosen = np.asarray(clients)
        costs: NDArray[np.float64] = self.rows[self.kind[chosen], self._step(widths)] * self.scale[chosen]
        return np.rint(costs)

    def _step(self, widths: NDArray[np.float64]) -> NDArray[np.intp]:
        return np.searchsorted(self.levels, widths - _SAME)
