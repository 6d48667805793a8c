"""Who trains which width: the base part and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from widthwise.allocation.costs import Costs, Currency
from widthwise.core.records import Cohort
from widthwise.core.traits import Trait

Widths = NDArray[np.float64]

TOLERANCE = 1e-9
"""Two widths closer than this are the same: 0.6000000000000001 is the tier 0.6."""


@dataclass(frozen=True)
class Population:
    """The registered clients, as far as allocation may know them.

    Attributes:
        capacities: [N] largest width of each client, in (0, 1], in client order.
        tiers: The widths that the fleet is designed for, ascending.
        costs: What a width costs each of them, in the policy's ``currency_of_budget``.
    """

    capacities: Widths
    tiers: tuple[float, ...]
    costs: Costs = field(default_factory=Costs)

    @property
    def largest(self) -> NDArray[np.bool_]:
        """[N] who has the largest capacity."""
        largest: NDArray[np.bool_] = self.capacities >= self.capacities.max() - TOLERANCE
        return largest


@dataclass(frozen=True)
class PolicyState:
    """What a policy remembers between rounds.

    Attributes:
        widths: [N] the width that each client has now: the next one where that is settled, else the last
            one given, and the capacity before the first.
        extra: Further numbers that a policy needs.
    """

    widths: Widths
    extra: Mapping[str, float] = field(default_factory=dict)


class Policy(BaseModel):
    """Base of all allocation policies. As it stands: every client keeps its initial width for ever.

    Shapes: N registered clients.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: Whether the width of a client depends on who else is in its cohort.
    shares_a_budget: ClassVar[bool] = False

    @property
    def currency_of_budget(self) -> Currency:
        """What ``population.costs`` must be in."""
        return "width"

    @property
    def needs(self) -> frozenset[Trait]:
        """What slices must be: where a budget is not in widths, of a cost that follows the width."""
        return frozenset() if self.currency_of_budget == "width" else frozenset({Trait.DENSE})

    def init(self, population: Population) -> PolicyState:
        """Return the state before the first round: every client at its capacity."""
        return PolicyState(population.capacities)

    def allocate(
        self, state: PolicyState, population: Population, cohort: Cohort, rng: np.random.Generator
    ) -> tuple[dict[int, float], PolicyState]:
        """Return the width of each client of the cohort, 0 for one that stays out, and the next state."""
        return {client: float(state.widths[client]) for client in cohort.client_ids}, state

    def observe(self, state: PolicyState, population: Population, estimates: Widths) -> PolicyState:
        """Return the state after an adaptation to the heterogeneity estimates [N]."""
        return state

    def reachable(self, population: Population) -> Widths:
        """Return [N] the largest width that each client can get in any round."""
        return self.init(population).widths

    def guaranteed(self, population: Population) -> Widths:
        """Return [N] the width that each client is certain to get at least, in every round it takes part in.

        Rounds before a policy's first adaptation do not count: they end.
        """
        return self.init(population).widths


def with_widths(state: PolicyState, given: Mapping[int, float], **extra: float) -> PolicyState:
    """Return the state in which the given clients have the given widths."""
    widths = state.widths.copy()
    widths[list(given)] = list(given.values())
    return PolicyState(widths, {**state.extra, **extra})
