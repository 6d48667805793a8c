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
    """Costs that change only where a sub-model gains a channel.

    Shapes: N registered clients, K steps, n clients of a cohort.

    Attributes:
        levels: [K] the widths at which a step ends, ascending, the last being 1.
        costs: [N, K] the cost of each client at widths above the level before and up to this one.

    Example:
        >>> stairs = Staircase(np.array([0.5, 1.0]), np.array([[10.0, 40.0], [20.0, 80.0]]))
        >>> stairs.of([0, 1], np.array([0.5, 0.51])).tolist()
        [10.0, 80.0]
    """

    levels: NDArray[np.float64]
    costs: NDArray[np.float64]

    @property
    def largest_step(self) -> float:
        """The most that the cost of one client can change at once."""
        return float(np.abs(np.diff(self.costs, axis=1)).max(initial=0.0))

    def snap(self, widths: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest widths that cost the same."""
        return self.levels[self._step(widths)]

    def of(self, clients: Sequence[int], widths: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what each client costs at its width, both [n]."""
        return self.costs[list(clients), self._step(widths)]

    def _step(self, widths: NDArray[np.float64]) -> NDArray[np.intp]:
        return np.searchsorted(self.levels, widths - _SAME)
