"""The controls: reversed allocation, the smallest tier for all, weak clients left out, any currency."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widthwise.allocation import POLICIES, Population, Staircase
from widthwise.allocation.reversed_adaptive import mirrored
from widthwise.core.errors import ConfigError
from widthwise.core.records import Cohort

CAPACITIES = np.array([0.25, 0.5, 1.0, 1.0])
TIERS = (0.25, 0.5, 1.0)
POPULATION = Population(CAPACITIES, TIERS)
QUARTERS = np.array([0.25, 0.5, 0.75, 1.0])
REVERSED, BUDGET = POLICIES["adaptive-reversed"].value, POLICIES["random-budget"].value


def test_adaptive_reversed_gives_most_to_the_least_divergent() -> None:
    # H = (2, .4, 1.2, .4), Hbar = 1. Mirrored: ranks (4, 1|2, 3, 1|2) get those of ranks (1, 4|3, 2, 4|3),
    # that is (.4, (2 + 1.2) / 2, .4, 1.6). Eq. 6: .1 + .25 H = (.2, .5, .2, .5), all within (.25, .5, 1, 1).
    policy = REVERSED(p_min=0.1, guarantee=False)
    estimates = np.array([2.0, 0.4, 1.2, 0.4])
    widths = policy.observe(policy.init(POPULATION), POPULATION, estimates).widths
    assert widths.tolist() == pytest.approx([0.2, 0.5, 0.2, 0.5], abs=1e-8)


def test_adaptive_reversed_keeps_caps_and_guarantee() -> None:
    policy = REVERSED(p_min=0.3)
    widths = policy.observe(policy.init(POPULATION), POPULATION, np.array([1.0, 3.0, 2.0, 2.0])).widths
    # Mirrored (3, 1, 2, 2) / 2: .3 + .25 (1.5, .5, 1, 1) = (.675, .425, .55, .55).
    assert widths.tolist() == pytest.approx([0.25, 0.425, 1.0, 1.0], abs=1e-8)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.3, 1.0, 1.5, 7.0]) | st.floats(0, 10), min_size=1, max_size=15))
def test_mirrored_keeps_the_mean_and_turns_the_order_round(values) -> None:
    estimates = np.array(values)
    turned = mirrored(estimates)
    assert turned.mean() == pytest.approx(estimates.mean())
    for i, j in np.ndindex(len(values), len(values)):
        if estimates[i] == estimates[j]:
            assert turned[i] == turned[j]
        elif estimates[i] < estimates[j]:
            assert turned[i] >= turned[j] - 1e-12
    if len(set(values)) == len(values):
        assert sorted(turned) == sorted(estimates)


def test_smallest_tier_gives_everybody_the_smallest_tier_or_less() -> None:
    policy = POLICIES["smallest-tier"].value()
    assert policy.reachable(POPULATION).tolist() == [0.25] * 4
    assert policy.init(Population(np.array([0.1, 1.0]), (1.0, 0.5))).widths.tolist() == [0.1, 0.5]


def test_strong_only_leaves_out_who_is_below_the_threshold() -> None:
    policy = POLICIES["strong-only"].value
    assert policy().init(POPULATION).widths.tolist() == [0, 0, 1, 1]
    assert policy(threshold=0.5).init(POPULATION).widths.tolist() == [0, 0.5, 1, 1]
    noisy = Population(np.array([0.1 * 3, 0.7, 0.1]), (0.1, 0.3, 0.7))
    assert policy(threshold=0.3).init(noisy).widths.tolist() == [0.1 * 3, 0.7, 0]


def test_strong_only_refuses_a_threshold_that_nobody_reaches() -> None:
    weak = Population(np.array([0.25, 0.75]), TIERS)
    with pytest.raises(ConfigError, match=r"threshold is 1, but the largest capacity of a client is 0\.75, "):
        POLICIES["strong-only"].value().init(weak)


def staircase(levels: Sequence[float], costs: list[float], clients: int) -> Staircase:
    """Return the same costs for all clients."""
    rows, kind = np.array([costs]), np.zeros(clients, dtype=np.intp)
    return Staircase(np.array(levels), rows, kind, np.ones(clients, dtype=np.int64))


def test_staircase_takes_a_width_with_float_noise_for_the_step_below() -> None:
    stairs = staircase([0.3, 0.6, 1.0], [1.0, 5.0, 7.0], 1)
    widths = np.array([0.1 * 3, 0.3, 0.300001, 0.1])
    assert stairs.of([0, 0, 0, 0], widths).tolist() == [1, 1, 5, 1]
    assert stairs.snap(widths).tolist() == [0.3, 0.3, 0.6, 0.3]
    assert stairs.largest_step == 4


def test_random_budget_gives_widths_at_the_end_of_their_step_and_never_above_capacity() -> None:
    # Capacity .3 lies inside the second step, whose slice it holds although the step ends at .5.
    population = Population(np.array([0.3, 1.0]), TIERS, staircase(QUARTERS, [1.0, 4, 9, 16], 2))
    policy = BUDGET(budget=6.5, currency="params")
    given, state = policy.allocate(
        policy.init(population), population, Cohort(0, (0, 1)), np.random.default_rng(0)
    )
    assert given in ({0: 0.3, 1: 0.75}, {0: 0.25, 1: 0.75})  # 13 = 4 + 9; 1 + 9 or 1 + 16 would be farther
    assert given == {0: 0.3, 1: 0.75}
    assert state.extra == {"carry": 0.0, "budget": 6.5, "spent": 6.5}


def test_random_budget_gives_the_largest_their_capacity_under_the_guarantee() -> None:
    policy = BUDGET(budget=0.6, guarantee=True)
    assert policy.guaranteed(POPULATION).tolist() == [0.1, 0.1, 1.0, 1.0]
    given, _ = policy.allocate(
        policy.init(POPULATION), POPULATION, Cohort(0, (0, 1, 2)), np.random.default_rng(0)
    )
    assert given[2] == 1.0
    assert sum(given.values()) == pytest.approx(1.75)  # not 1.8: the other two are at their caps


def test_random_budget_refuses_a_budget_in_params_that_nobody_can_meet() -> None:
    population = Population(CAPACITIES, TIERS, staircase(QUARTERS, [1.0, 4, 9, 16], 4))
    with pytest.raises(
        ConfigError, match=r"budget is 20, but .* mean of params from 1 \(all .*\) to 9\.25\."
    ):
        BUDGET(budget=20, currency="params").init(population)
    assert BUDGET(budget=9.25, currency="params").init(population).widths.tolist() == CAPACITIES.tolist()


def test_random_budget_refuses_a_mean_width_above_one() -> None:
    with pytest.raises(ValueError, match=r"budget is 2, but a mean width is in \(0, 1\]\. Lower it, or name"):
        BUDGET(budget=2)
