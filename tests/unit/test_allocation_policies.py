from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from widthwise.allocation import POLICIES, PolicyState, Population
from widthwise.core.errors import ConfigError
from widthwise.core.records import Cohort

CAPACITIES = np.array([0.25, 0.5, 1.0, 1.0])
POPULATION = Population(CAPACITIES, (0.25, 0.5, 1.0))
ADAPTIVE, BUDGET = POLICIES["adaptive"].value, POLICIES["random-budget"].value


def observed(policy, estimates: list[float], population: Population = POPULATION) -> list[float]:
    return policy.observe(policy.init(population), population, np.array(estimates)).widths.tolist()


def test_adaptive_follows_equation_6_when_the_guarantee_is_off() -> None:
    # H = (2, 0.4, 1.2, 0.4), Hbar = 1: .4 + .25 H = (.9, .5, .7, .5), within (.25, .5, 1, 1).
    widths = observed(ADAPTIVE(guarantee=False), [2.0, 0.4, 1.2, 0.4])
    assert widths == pytest.approx([0.25, 0.5, 0.7, 0.5], abs=1e-8)


def test_adaptive_keeps_the_largest_clients_at_capacity_when_the_guarantee_is_on() -> None:
    assert observed(ADAPTIVE(p_min=0.1), [2.0, 0.4, 1.2, 0.4]) == pytest.approx([0.25, 0.2, 1, 1], abs=1e-8)


def test_adaptive_guarantee_protects_the_largest_capacity_when_nobody_has_full_width() -> None:
    population = Population(np.array([0.5, 0.75, 0.75]), (0.5, 0.75))
    assert observed(ADAPTIVE(gamma=0), [1, 1, 1], population) == [0.4, 0.75, 0.75]


def test_adaptive_gives_equal_widths_when_gamma_is_zero() -> None:
    assert observed(ADAPTIVE(gamma=0, guarantee=False), [3, 0, 1, 0]) == [0.25, 0.4, 0.4, 0.4]


def test_adaptive_stays_finite_when_all_estimates_are_zero() -> None:
    assert observed(ADAPTIVE(guarantee=False), [0, 0, 0, 0]) == [0.25, 0.4, 0.4, 0.4]


def test_adaptive_trains_at_capacity_before_it_adapts() -> None:
    assert ADAPTIVE(guarantee=False).init(POPULATION).widths.tolist() == CAPACITIES.tolist()


def test_adaptive_guarantees_only_its_smallest_width_when_the_guarantee_is_off() -> None:
    assert ADAPTIVE(guarantee=False).guaranteed(POPULATION).tolist() == [0.25, 0.4, 0.4, 0.4]
    assert ADAPTIVE().guaranteed(POPULATION).tolist() == [0.25, 0.4, 1.0, 1.0]


def test_fixed_leaves_small_clients_at_their_capacity() -> None:
    assert POLICIES["fixed"].value().init(POPULATION).widths.tolist() == [0.25, 0.5, 0.5, 0.5]


def test_tier_draw_takes_each_fitting_tier_equally_often() -> None:
    # 3,000 draws of 3 tiers: sd of a share is sqrt(2/9/3000) = .0086; 5 sd give a false alarm in 1e-6.
    policy, rng = POLICIES["tier-draw"].value(), np.random.default_rng(0)
    state = policy.init(POPULATION)
    draws = [policy.allocate(state, POPULATION, Cohort(0, (1, 2)), rng)[0] for _ in range(3000)]
    assert {d[1] for d in draws} == {0.25, 0.5}
    for tier in (0.25, 0.5, 1.0):
        assert np.mean([d[2] == tier for d in draws]) == pytest.approx(1 / 3, abs=0.043)


def test_tier_draw_gives_the_capacity_when_no_tier_fits() -> None:
    population = Population(np.array([0.1]), (0.25, 0.5))
    policy = POLICIES["tier-draw"].value()
    given, state = policy.allocate(
        policy.init(population), population, Cohort(0, (0,)), np.random.default_rng(0)
    )
    assert given == {0: 0.1}
    assert state.widths.tolist() == [0.1]


def test_tier_draw_knows_a_tier_when_the_capacity_has_float_noise() -> None:
    population = Population(np.array([0.1 * 3 - 1e-16 * 3]), (0.3,))
    assert POLICIES["tier-draw"].value().reachable(population).tolist() == [0.3]


def test_tier_draw_reaches_the_largest_and_is_certain_of_the_smallest_tier_within_each_capacity() -> None:
    tiers = (0.75, 0.25, 0.5)
    capacities = np.array([0.1, 0.25, 0.3, 0.5 - 1e-12, 0.74, 0.75, 1.0])
    policy, population = POLICIES["tier-draw"].value(), Population(capacities, tiers)
    within = [[t for t in tiers if t <= c + 1e-9] or [c] for c in capacities.tolist()]
    assert policy.reachable(population).tolist() == [max(held) for held in within]
    assert policy.guaranteed(population).tolist() == [min(held) for held in within]


def test_random_budget_repays_what_a_cohort_could_not_take() -> None:
    # Round 0: caps .25 + .5 = .75 against 2 * .7 = 1.4 wanted, so .65 is owed.
    # Round 1: 1.4 + .65 = 2.05 against caps 2, so .05 is owed. Round 2: 1.4 + .05 = 1.45 fits.
    policy, rng = BUDGET(budget=0.7), np.random.default_rng(0)
    state, totals = PolicyState(CAPACITIES), []
    for t, clients in enumerate([(0, 1), (2, 3), (2, 3)]):
        given, state = policy.allocate(state, POPULATION, Cohort(t, clients), rng)
        totals.append(sum(given.values()))
    assert totals == pytest.approx([0.75, 2.0, 1.45], abs=1e-12)
    assert state.extra["carry"] == pytest.approx(0, abs=1e-12)
    assert sum(totals) / 6 == pytest.approx(0.7, abs=1e-12)


@pytest.mark.parametrize("budget", [0.05, 0.7])
def test_random_budget_refuses_a_budget_that_the_capacities_cannot_meet(budget: float) -> None:
    with pytest.raises(ConfigError, match=r"have a mean from 0\.1 \(all at floor 0\.1\) to 0\.6875\. Choose"):
        BUDGET(budget=budget).init(POPULATION)


def test_random_budget_follows_the_target_of_each_round() -> None:
    policy, state = BUDGET(targets=(0.3, 0.6)), PolicyState(CAPACITIES)
    for t, mean in enumerate([0.3, 0.6, 0.6]):
        given, state = policy.allocate(state, POPULATION, Cohort(t, (1, 2, 3)), np.random.default_rng(t))
        assert np.mean(list(given.values())) == pytest.approx(mean, abs=1e-12)
        assert len(set(given.values())) > 1


@pytest.mark.parametrize("options", [{}, {"budget": 0.5, "matched_to": "runs/x"}])
def test_random_budget_refuses_other_than_one_target(options: dict[str, object]) -> None:
    with pytest.raises(
        ValidationError, match=r"both or neither of budget and matched_to, but it needs exactly one\."
    ):
        BUDGET(**options)


def test_random_budget_refuses_a_target_that_is_no_width() -> None:
    with pytest.raises(
        ValidationError, match=r"target is 1\.5, but a mean width is not below 0 or above 1\."
    ):
        BUDGET(targets=(0.5, 1.5))
    with pytest.raises(ValidationError, match=r"target is -1\.0, but a mean macs is not below 0\. Check"):
        BUDGET(targets=(5e6, -1.0), currency="macs")


def test_random_budget_refuses_to_run_when_its_targets_have_not_been_read() -> None:
    policy = BUDGET(matched_to="runs/x")
    with pytest.raises(ConfigError, match="matched to runs/x, but its targets have not been read"):
        policy.allocate(policy.init(POPULATION), POPULATION, Cohort(0, (0,)), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fixed", {"width": 0.0}),
        ("fixed", {"width": 1.1}),
        ("adaptive", {"p_min": 0}),
        ("adaptive", {"gamma": -0.1}),
        ("adaptive", {"gamma": float("inf")}),
        ("random-budget", {"budget": 2}),
        ("random-budget", {"budget": 0.5, "floor": 0}),
        ("capacity", {"width": 0.5}),
    ],
)
def test_policy_refuses_options_out_of_range(name: str, options: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=list(options)[-1]):
        POLICIES[name].value(**options)
