"""A method is one choice of each part: who trains which width, how, and what is measured on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from widthwise.allocation import Policy
from widthwise.heterogeneity import Estimator
from widthwise.slicing import Selector
from widthwise.training import Objective

Weighting = Literal["examples", "clients"]
Uncovered = Literal["keep", "zero"]


@dataclass(frozen=True)
class Composition:
    """The parts of a published method, by name. Users may replace each of them.

    Attributes:
        policy: Who trains which width.
        objective: What a client minimises.
        estimator: What is measured from the updates. Every method measures, so that every method can be
            audited; only a policy that adapts reacts to it.
        selector: Which channels a width keeps.
        weighting: What a client's update counts for: its samples, or one for each client.
        uncovered: What happens to a coordinate that nobody in the cohort trains.
    """

    policy: str
    objective: str = "plain"
    estimator: str = "restricted"
    selector: str = "nested"
    weighting: Weighting = "examples"
    uncovered: Uncovered = "keep"


@dataclass(frozen=True)
class Method:
    """A method whose parts are built and validated: what the engine runs.

    Attributes:
        name: Name of the composition that it started from.
        parts: The final choice by name.
        policy: Allocation policy.
        objective: Local objective.
        estimator: Heterogeneity estimator, or None where nothing is to be measured.
        selector: Channel selector.
    """

    name: str
    parts: Composition
    policy: Policy
    objective: Objective
    estimator: Estimator | None
    selector: Selector

    def weight(self, samples: int) -> float:
        """Return what a client's update counts for: its samples, or one."""
        return float(samples) if self.parts.weighting == "examples" else 1.0

    @property
    def uncovered(self) -> Uncovered:
        """The rule for coordinates that nobody trained."""
        return self.parts.uncovered

    def to_config(self) -> dict[str, Any]:
        """Return the flat configuration with every default written out; building it gives an equal method."""
        options: dict[str, Any] = {}
        for part in (self.policy, self.objective, self.estimator, self.selector):
            options |= part.model_dump(mode="json") if part is not None else {}
        return {"name": self.name, **vars(self.parts), **options}
