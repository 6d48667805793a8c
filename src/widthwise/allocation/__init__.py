"""Who trains which width: one file for each policy, each a pure function on an explicit state."""

from __future__ import annotations

from widthwise.allocation.adaptive import Adaptive
from widthwise.allocation.capacity import Capacity
from widthwise.allocation.fixed import Fixed
from widthwise.allocation.full import Full
from widthwise.allocation.policy import Policy, PolicyState, Population
from widthwise.allocation.random_budget import RandomBudget
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
    summary="random widths with a prescribed mean",
    source="arXiv 2608.07157, section 4",
)
POLICIES.add(
    "adaptive",
    Adaptive,
    summary="width by estimated heterogeneity, with a coverage guarantee",
    source="arXiv 2608.07157, eq. 6",
)

__all__ = ["POLICIES", "Policy", "PolicyState", "Population"]
