"""Strong clients at their capacity, weak ones not at all."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from widthwise.allocation.policy import TOLERANCE, Policy, PolicyState, Population
from widthwise.core.errors import ConfigError


class StrongOnly(Policy):
    """Strong clients train at their capacity and weak ones stay out.

        p_i = p_i^max where p_i^max >= threshold, else 0

    Cohorts are drawn as under every other policy, and the weak clients in them do nothing: choosing
    others in their place would give this policy more training in a round than its rivals. A cohort
    without a strong client leaves the model as it is.

    Source: widthwise, as a control: it shows what the data of weak clients is worth, which every
    sub-model method claims to use. (Leaving out devices that cannot hold the model is what plain
    federated averaging does in practice.)

    Attributes:
        threshold: Smallest capacity that takes part; by default only clients that hold the full model.
    """

    threshold: float = Field(1.0, gt=0, le=1)

    def init(self, population: Population) -> PolicyState:
        """Return the state in which the strong have their capacity and the others width 0.

        Raises:
            ConfigError: if nobody is strong enough.
        """
        caps = population.capacities
        strong = caps >= self.threshold - TOLERANCE
        if not strong.any():
            raise ConfigError(
                f"method.threshold is {self.threshold:g}, but the largest capacity of a client is "
                f"{caps.max():g}, so that nobody would train. Lower it."
            )
        return PolicyState(np.where(strong, caps, 0.0))
