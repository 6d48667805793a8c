"""The full model for everybody."""

from __future__ import annotations

import numpy as np

from widthwise.allocation.policy import Policy, PolicyState, Population


class Full(Policy):
    """Width 1 for every client, whatever its capacity: p_i = 1.

    Source: McMahan et al. 2017 (FedAvg). Departs: no. The one policy that ignores capacities; it shows
    what the constraint costs.
    """

    def init(self, population: Population) -> PolicyState:
        """Return the state in which every client has width 1."""
        return PolicyState(np.ones_like(population.capacities, dtype=np.float64))
