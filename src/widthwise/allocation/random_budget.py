"""Random widths at a prescribed cost: the matched control of any method that chooses widths."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from widthwise.allocation.costs import Currency
from widthwise.allocation.policy import Policy, PolicyState, Population, Widths, with_widths
from widthwise.core.errors import ConfigError
from widthwise.core.records import Cohort


class RandomBudget(Policy):
    """Random, time-varying widths that cost what they are allowed to in each round.

    With the cost c_i(p) of client i at width p, in the chosen currency, each round draws
    u_i ~ U[l_i, p_i^max] with l_i = min(floor, p_i^max), and gives the cohort S

        p_i = clip(u_i + s, l_i, p_i^max),   s such that sum_{i in S} c_i(p_i) = |S| * budget (+ what is owed)

    In the currency ``width``, c_i(p) = p and the sum is exact up to float rounding. Parameters, MACs and
    bytes are staircases, which change where a sub-model gains a channel; widths are then the largest of
    their step, and the sum is within one step of one client. What is left over, because of a step or
    because all of the cohort are at their caps or at their floors, is owed to the following rounds
    (``state.extra["carry"]``, summed over clients). The total over the run is therefore as exact as that
    of a round wherever it is feasible.

    Source: Moayedikia and Troncoso Lora, arXiv 2608.07157, section 4, baseline "Random-budget". Departs:
    the paper scales its draws so that the mean widths agree over the run and lets them differ (.49 against
    .52); here they agree in every round. Currencies other than the width, and the guarantee, are ours.

    Attributes:
        budget: Mean cost of a participant in every round.
        matched_to: A run whose cost is matched round by round: its folder until its costs have been read
            into ``targets``, its configuration hash from then on.
        targets: Mean cost of a participant in each round; rounds beyond the last repeat it.
        currency: What is counted: ``width``, ``params`` (of the slices), ``macs`` (of local training, so
            each client counts by its samples and epochs) or ``bytes`` (up and down).
        guarantee: Whether clients of the largest capacity always train at it.
        floor: Smallest width to be drawn (ours: with 16 channels it keeps 2).
    """

    shares_a_budget: ClassVar[bool] = True

    budget: float | None = Field(None, gt=0, allow_inf_nan=False)
    matched_to: str | None = None
    targets: tuple[float, ...] = ()
    currency: Currency = "width"
    guarantee: bool = False
    floor: float = Field(0.1, gt=0, le=1)

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.budget is None) == (self.matched_to is None and not self.targets):
            raise ConfigError(
                "random-budget has both or neither of budget and matched_to, but it needs exactly one. "
                "Give the mean cost as budget, or the folder of the run to match as matched_to."
            )
        most = 1.0 if self.currency == "width" else np.inf
        if self.budget is not None and self.budget > most:
            raise ConfigError(
                f"method.budget is {self.budget:g}, but a mean width is in (0, 1]. "
                "Lower it, or name its currency."
            )
        for target in self.targets:
            if not 0 <= target <= most:
                raise ConfigError(
                    f"random-budget's target is {target}, but a mean {self.currency} is not below 0"
                    f"{'' if most > 1 else ' or above 1'}. Check the run that it is matched to."
                )
        return self

    @property
    def currency_of_budget(self) -> Currency:
        """What ``population.costs`` must be in."""
        return self.currency

    def init(self, population: Population) -> PolicyState:
        """Return the state before the first round.

        Raises:
            ConfigError: if the budget is not between the mean costs of all clients at their floors and at
                their capacities: no draw within the capacities would have it as its mean.
        """
        everybody = range(len(population.capacities))
        least, most = (
            population.costs.of(everybody, widths).mean()
            for widths in (self.guaranteed(population), self.reachable(population))
        )
        if self.budget is not None and not least - 1e-9 <= self.budget <= most + 1e-9:
            raise ConfigError(
                f"method.budget is {self.budget:g}, but widths within the clients' capacities have a mean "
                f"{'' if self.currency == 'width' else f'of {self.currency} '}from {least:g} "
                f"(all at floor {self.floor:g}) to {most:g}. Choose a budget between these."
            )
        return super().init(population)

    def allocate(
        self, state: PolicyState, population: Population, cohort: Cohort, rng: np.random.Generator
    ) -> tuple[dict[int, float], PolicyState]:
        """Return widths that cost what this round may; the state says ``budget`` and ``spent`` per head."""
        clients, costs = list(cohort.client_ids), population.costs
        caps = self.reachable(population)[clients]
        floors = self.guaranteed(population)[clients]
        budget = self._target(cohort.round_index)
        wanted = len(clients) * budget + state.extra.get("carry", 0.0)
        drawn = rng.uniform(floors, caps)
        widths = shift_to_total(drawn, floors, caps, wanted, lambda p: float(costs.of(clients, p).sum()))
        widths = np.minimum(costs.snap(widths), caps)
        spent = float(costs.of(clients, widths).sum())
        given = dict(zip(clients, widths.tolist(), strict=True))
        after = with_widths(state, given, carry=wanted - spent, budget=budget, spent=spent / len(clients))
        return given, after

    def reachable(self, population: Population) -> Widths:
        """Return [N] the capacities."""
        return population.capacities

    def guaranteed(self, population: Population) -> Widths:
        """Return [N] the floors, and under the guarantee the largest capacity of those who have it."""
        caps = self.reachable(population)
        return np.where(self.guarantee & population.largest, caps, np.minimum(self.floor, caps))

    def _target(self, round_index: int) -> float:
        """Return the mean cost of a participant in a round."""
        if self.targets:
            return self.targets[min(round_index, len(self.targets) - 1)]
        if self.budget is None:
            raise ConfigError(
                f"random-budget is matched to {self.matched_to}, but its targets have not been read. "
                "Fill in targets with the mean cost of a participant in each round of that run."
            )
        return self.budget


def shift_to_total(
    values: Widths, low: Widths, high: Widths, total: float, cost: Callable[[Widths], float]
) -> Widths:
    """Return clip(values + s, low, high) for the s at which the cost comes to ``total``, or nearest to it.

    Bisection keeps cost(below) <= total < cost(above) until both shifts are the same number but for
    rounding. Where the cost is continuous they then cost the same; where it jumps, one element has jumped
    (draws of a continuous distribution do not tie), and the nearer side is returned. It needs no cost
    that grows everywhere, only that the total lies between its ends.

    Args:
        values: [n] with low <= values <= high.
        low: [n] lower bounds, in [0, 1].
        high: [n] upper bounds, in [0, 1].
        total: The wanted cost.
        cost: The cost of [n] widths.

    Example:
        >>> zeros, half = np.zeros(2), np.array([0.5, 1.0])
        >>> shift_to_total(np.array([0.25, 0.5]), zeros, half, 1.25, sum).round(9).tolist()
        [0.5, 0.75]
    """

    def at(shift: float) -> Widths:
        return np.clip(values + shift, low, high)

    below, above = -1.0, 1.0  # everything at its lower, or at its upper bound
    if cost(at(below)) >= total:
        return at(below)
    if cost(at(above)) <= total:
        return at(above)
    for _ in range(60):  # 2 ** -59 is far below the rounding of a width
        middle = (below + above) / 2
        if cost(at(middle)) <= total:
            below = middle
        else:
            above = middle
    return min(at(below), at(above), key=lambda widths: abs(cost(widths) - total))
