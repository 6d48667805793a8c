"""A random tier within the capacity, anew in each round."""

from __future__ import annotations

import numpy as np

from widthwise.allocation.policy import TOLERANCE, Policy, PolicyState, Population, Widths, with_widths
from widthwise.core.records import Cohort


class TierDraw(Policy):
    """Each client of the cohort draws one of the tiers that it can train: p_i ~ U{p in P: p <= p_i^max}.

    A client that can train no tier gets its capacity.

    Source: Horvath et al. 2021 (FjORD), section 3, as used in Moayedikia and Troncoso Lora, arXiv
    2608.07157, section 4. Departs: drawn once per round (the second paper), not once per local step (the
    first); for that, take the policy ``capacity`` and the objective ``distillation`` with ``draw: step``.
    """

    def allocate(
        self, state: PolicyState, population: Population, cohort: Cohort, rng: np.random.Generator
    ) -> tuple[dict[int, float], PolicyState]:
        """Return one tier for each client of the cohort, drawn in cohort order."""
        given = {client: float(rng.choice(_choices(population, client))) for client in cohort.client_ids}
        return given, with_widths(state, given)

    def reachable(self, population: Population) -> Widths:
        """Return [N] the largest tier that each client can draw."""
        tiers = np.sort(population.tiers)
        held = np.searchsorted(tiers, population.capacities + TOLERANCE, side="right")
        return np.where(held > 0, tiers[held - 1], population.capacities)

    def guaranteed(self, population: Population) -> Widths:
        """Return [N] the smallest tier that each client can draw."""
        return np.minimum(min(population.tiers), self.reachable(population))


def _choices(population: Population, client: int) -> list[float]:
    """Return the widths that a client may draw, ascending."""
    capacity = float(population.capacities[client])
    return [tier for tier in sorted(population.tiers) if tier <= capacity + TOLERANCE] or [capacity]
