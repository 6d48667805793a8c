"""One width for everybody, within capacities."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from widthwise.allocation.policy import Policy, PolicyState, Population


class Fixed(Policy):
    """The same width for every client that can train it: p_i = min(width, p_i^max).

    Source: Moayedikia and Troncoso Lora, arXiv 2608.07157, section 3.3, baseline "Uniform". Departs: no.
    No coordinate beyond ``width`` is ever trained.

    Attributes:
        width: The common width.
    """

    width: float = Field(0.5, gt=0, le=1)

    def init(self, population: Population) -> PolicyState:
        """Return the state in which every client has the common width, or its capacity if that is less."""
        return PolicyState(np.minimum(self.width, population.capacities))
