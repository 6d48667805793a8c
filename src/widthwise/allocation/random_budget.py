"""Random widths with a prescribed mean: the matched control of an adaptive method."""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from widthwise.allocation.policy import Policy, PolicyState, Population, Widths, with_widths
from widthwise.core.errors import ConfigError
from widthwise.core.records import Cohort


class RandomBudget(Policy):
    """Random, time-varying widths whose mean over the cohort is a given number in each round.

    Each round draws u_i ~ U[l_i, c_i] with l_i = min(floor, c_i) and c_i = p_i^max, and gives

        p_i = clip(u_i + s, l_i, c_i),   s such that mean_i p_i = target (+ what earlier rounds still owe)

    which is exact up to float rounding, non-decreasing in u_i, and leaves the draw as it is where its mean
    already fits. Where the cohort cannot reach the target (all at their caps, or all at their floors), it
    takes the nearest mean and the following rounds make up for the rest (``state.extra["carry"]``, in
    units of width summed over clients), so that the mean over the run is exact wherever that is feasible.

    Source: Moayedikia and Troncoso Lora, arXiv 2608.07157, section 4, baseline "Random-budget". Departs:
    the paper scales its draws so that the averages agree over the run and lets them differ (.49 against
    .52); here they agree exactly, and in every round.

    Attributes:
        budget: Mean width of every round.
        matched_to: Folder of a run whose mean width is matched round by round; whoever builds the policy
            reads it and gives ``targets`` in its place.
        targets: Mean width of each round; rounds beyond the last repeat it.
        floor: Smallest width to be drawn (ours: with 16 channels it keeps 2).
    """

    budget: float | None = Field(None, gt=0, le=1)
    matched_to: str | None = None
    targets: tuple[float, ...] = ()
    floor: float = Field(0.1, gt=0, le=1)

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        given = [self.budget is not None, self.matched_to is not None, bool(self.targets)]
        if sum(given) != 1:
            raise ConfigError(
                f"random-budget has {sum(given)} of budget, matched_to and targets, but it needs exactly "
                "one. Give the mean width as budget, or the folder of the run to match as matched_to."
            )
        for target in self.targets:
            if not 0 < target <= 1:
                raise ConfigError(
                    f"random-budget's target is {target}, but a mean width is in (0, 1]. "
                    "Check mean_width in the run that it is matched to."
                )
        return self

    def init(self, population: Population) -> PolicyState:
        """Return the state before the first round.

        Raises:
            ConfigError: if the budget is not between the mean floor and the mean capacity of the clients:
                no draw within the capacities would have it as its mean.
        """
        least, most = self.guaranteed(population).mean(), population.capacities.mean()
        if self.budget is not None and not least - 1e-9 <= self.budget <= most + 1e-9:
            raise ConfigError(
                f"method.budget is {self.budget:g}, but widths within the clients' capacities have a mean "
                f"from {least:g} (all at floor {self.floor:g}) to {most:g}. Choose a budget between these."
            )
        return super().init(population)

    def allocate(
        self, state: PolicyState, population: Population, cohort: Cohort, rng: np.random.Generator
    ) -> tuple[dict[int, float], PolicyState]:
        """Return widths whose mean is this round's target."""
        clients = list(cohort.client_ids)
        caps = population.capacities[clients].astype(np.float64)
        floors = np.minimum(self.floor, caps)
        wanted = len(clients) * self._target(cohort.round_index) + state.extra.get("carry", 0.0)
        widths = shift_to_sum(rng.uniform(floors, caps), floors, caps, wanted)
        given = dict(zip(clients, widths.tolist(), strict=True))
        return given, with_widths(state, given, carry=wanted - float(widths.sum()))

    def guaranteed(self, population: Population) -> Widths:
        """Return [N] the floors."""
        return np.minimum(self.floor, population.capacities)

    def _target(self, round_index: int) -> float:
        """Return the mean width of a round."""
        if self.targets:
            return self.targets[min(round_index, len(self.targets) - 1)]
        if self.budget is None:
            raise ConfigError(
                f"random-budget is matched to {self.matched_to}, but its targets have not been read. "
                "Fill in targets with the mean width of each round of that run."
            )
        return self.budget


def shift_to_sum(values: Widths, low: Widths, high: Widths, total: float) -> Widths:
    """Return clip(values + s, low, high) for the s at which the sum is ``total``, or comes nearest to it.

    The sum is continuous, non-decreasing and piecewise linear in s, with kinks where an element meets
    one of its bounds; so s is a linear interpolation between two kinks.

    Args:
        values: [n] with low <= values <= high.
        low: [n] lower bounds.
        high: [n] upper bounds.
        total: The wanted sum.

    Example:
        >>> shift_to_sum(np.array([0.25, 0.5]), np.array([0.0, 0.0]), np.array([0.5, 1.0]), 1.25)
        array([0.5 , 0.75])
    """
    kinks = np.sort(np.concatenate([low - values, high - values]))
    sums = np.clip(values + kinks[:, None], low, high).sum(axis=1)
    shift = float(np.interp(total, sums, kinks))
    return np.clip(values + shift, low, high)
