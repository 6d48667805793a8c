"""Who trains which width: one file for each policy, each a pure function on an explicit state."""

from __future__ import annotations

from widthwise.allocation.adaptive import Adaptive
from widthwise.allocation.capacity import Capacity
from widthwise.allocation.costs import Costs, Currency, Staircase
from widthwise.allocation.fixed import Fixed
from widthwise.allocation.full import Full
from widthwise.allocation.policy import Policy, PolicyState, Population
from widthwise.allocation.random_budget import RandomBudget
from widthwise.allocation.reversed_adaptive import ReversedAdaptive
from widthwise.allocation.smallest_tier import SmallestTier
from widthwise.allocation.strong_only import StrongOnly
from widthwise.allocation.tier_draw import TierDraw
from widthwise.core.registry import Registry

POLICIES = Registry[type[Policy]]("policy")
POLICIES.add("full", Full, summary="width 1, capacities ignored", source="McMahan et al. 2017")
POLICIES.add("capacity", Capacity, summary="each client at its capacity", source="Diao et al. 2021")
POLICIES.add(
    "tier-draw",
    TierDraw,
    summary="a random tier within the capacity, each round",
    source="Horvath et al. 2021",
)
POLICIES.add("fixed", Fixed, summary="one width within capacities", source="arXiv 2608.07157, section 3.3")
POLICIES.add(
    "random-budget",
    RandomBudget,
    summary="random widths at a prescribed cost",
    source="arXiv 2608.07157, section 4",
)
POLICIES.add(
    "adaptive",
    Adaptive,
    summary="width by estimated heterogeneity, with a coverage guarantee",
    source="arXiv 2608.07157, eq. 6",
)
POLICIES.add(
    "adaptive-reversed",
    ReversedAdaptive,
    summary="most width for the least divergent clients",
    source="widthwise, control for arXiv 2608.07157, eq. 6",
)
POLICIES.add(
    "smallest-tier", SmallestTier, summary="the smallest tier for everybody", source="widthwise, control"
)
POLICIES.add(
    "strong-only",
    StrongOnly,
    summary="strong clients at capacity, weak ones stay out",
    source="widthwise, control",
)

__all__ = ["POLICIES", "Costs", "Currency", "Policy", "PolicyState", "Population", "Staircase"]
