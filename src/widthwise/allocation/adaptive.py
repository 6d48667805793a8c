"""Width by estimated heterogeneity, with a coverage guarantee."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from widthwise.allocation.policy import Policy, PolicyState, Population, Widths


class Adaptive(Policy):
    """More width for clients whose updates diverge more.

        p_i = min(p_i^max, p_min + gamma * H_i / (Hbar + eps)),   Hbar = mean over all N clients of H_i

    and, with the guarantee, p_i = p_i^max for every client of the largest capacity, so that every
    coordinate that anybody can train stays trained. Before the first adaptation p_i = p_i^max.

    Source: Moayedikia and Troncoso Lora, arXiv 2608.07157, eq. 6 and algorithm 1 (HAS-FL). Departs: no;
    eps, which the paper leaves open, is 1e-8.

    Attributes:
        p_min: Width at no heterogeneity.
        gamma: Further width at average heterogeneity; 0 gives all clients the same width within caps.
        guarantee: Whether clients of the largest capacity always train at it.
        eps: Keeps the quotient finite where all estimates are 0.
    """

    p_min: float = Field(0.4, gt=0, le=1)
    gamma: float = Field(0.25, ge=0, allow_inf_nan=False)
    guarantee: bool = True
    eps: float = Field(1e-8, gt=0, allow_inf_nan=False)

    def observe(self, state: PolicyState, population: Population, estimates: Widths) -> PolicyState:
        """Return the state in which widths follow eq. 6 at these estimates [N], all non-negative."""
        wanted = self.gamma * estimates
        wanted /= estimates.mean() + self.eps
        wanted += self.p_min
        return PolicyState(self._limit_(population, wanted), state.extra)

    def guaranteed(self, population: Population) -> Widths:
        """Return [N] eq. 6 at H_i = 0, the least it can give: min(p_i^max, p_min), capacity under guarantee.

        ``reachable`` is the capacity, which every client has until the first adaptation; after that the
        bound is min(p_i^max, p_min + gamma * N), since one client may hold all the heterogeneity.
        """
        return self._limit_(population, np.full(len(population.capacities), self.p_min))

    def _limit_(self, population: Population, wanted: Widths) -> Widths:
        """Cut the wanted widths to capacities, with the guarantee if it is on: in place, for millions."""
        np.minimum(population.capacities, wanted, out=wanted)
        if self.guarantee:
            np.copyto(wanted, population.capacities, where=population.largest)
        return wanted
