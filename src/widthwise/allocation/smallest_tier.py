"""The smallest tier for everybody."""

from __future__ import annotations

import numpy as np

from widthwise.allocation.policy import Policy, PolicyState, Population


class SmallestTier(Policy):
    """Every client trains what the weakest device can: p_i = min(smallest tier, p_i^max).

    Coordinates outside that tier are never trained.

    Source: widthwise, as a control: it shows what the width beyond the smallest tier is worth.
    """

    def init(self, population: Population) -> PolicyState:
        """Return the state in which every client has the smallest tier, or its capacity if that is less."""
        return PolicyState(np.minimum(min(population.tiers), population.capacities))
