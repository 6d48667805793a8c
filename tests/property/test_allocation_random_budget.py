from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from widthwise.allocation import POLICIES, Costs, Population, Staircase
from widthwise.allocation.random_budget import shift_to_total
from widthwise.core.records import Cohort

unit = st.floats(0, 1)
rows = st.lists(st.tuples(unit, unit, unit), min_size=1, max_size=12)


def bounds(triples: list[tuple[float, float, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values between lower and upper bounds."""
    ordered = np.sort(np.array(triples), axis=1)
    return ordered[:, 1], ordered[:, 0], ordered[:, 2]


def total_width(widths: np.ndarray) -> float:
    return float(widths.sum())


@settings(max_examples=100, deadline=None)
@given(rows, unit)
def test_shift_to_total_hits_every_width_that_the_bounds_allow(triples, share) -> None:
    values, low, high = bounds(triples)
    total = low.sum() + share * (high.sum() - low.sum())
    shifted = shift_to_total(values, low, high, total, total_width)
    assert np.all((low <= shifted) & (shifted <= high))
    assert abs(shifted.sum() - total) <= 1e-12 * len(values)


@settings(max_examples=60, deadline=None)
@given(rows, st.floats(-3, 15))
def test_shift_to_total_takes_the_nearest_width_when_the_bounds_do_not_allow_it(triples, total) -> None:
    values, low, high = bounds(triples)
    nearest = np.clip(total, low.sum(), high.sum())
    assert abs(shift_to_total(values, low, high, total, total_width).sum() - nearest) <= 1e-12 * len(values)


@settings(max_examples=60, deadline=None)
@given(rows, unit)
def test_shift_to_total_moves_all_values_one_way_and_by_one_amount_inside_the_bounds(triples, share) -> None:
    values, low, high = bounds(triples)
    moved = shift_to_total(values, low, high, share * high.sum(), total_width) - values
    assert np.all(moved >= -1e-12) or np.all(moved <= 1e-12)
    after = values + moved
    inside = (after > low + 1e-9) & (after < high - 1e-9)
    assert np.allclose(moved[inside], moved[inside].mean() if inside.any() else 0, atol=1e-9)


def staircase(levels: np.ndarray, costs: np.ndarray) -> Staircase:
    """Return costs with a row for each client; in millionths, since what is paid is a whole number."""
    clients = len(costs)
    return Staircase(levels, 1e6 * costs, np.arange(clients), np.ones(clients, dtype=np.int64))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.booleans(), unit)
def test_shift_to_total_comes_within_one_step_on_any_staircase(seed, size, falling, share) -> None:
    """Also where one step costs less than the one before it, as MACs do where a teacher falls away."""
    rng = np.random.default_rng(seed)
    levels = np.append(np.sort(rng.uniform(0.01, 0.99, 12)), 1.0)
    steps = rng.uniform(-3 if falling else 0, 10, size=(size, 13))
    stairs = staircase(levels, 50 + steps.cumsum(axis=1))
    low, high = np.sort(rng.uniform(0, 1, size=(2, size)), axis=0)

    def cost(widths: np.ndarray) -> float:
        return float(stairs.of(range(size), widths).sum())

    total = cost(low) + share * (cost(high) - cost(low))
    reached = cost(shift_to_total(rng.uniform(low, high), low, high, total, cost))
    assert abs(reached - total) <= stairs.largest_step + 1e-9


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0, 2))
def test_shift_to_total_gives_more_of_every_width_when_it_may_spend_more(seed, more) -> None:
    rng = np.random.default_rng(seed)
    stairs = staircase(np.arange(1, 17) / 16, np.arange(1, 17)[None].repeat(8, axis=0) ** 2.0)
    low, high = np.sort(rng.uniform(0, 1, size=(2, 8)), axis=0)
    drawn = rng.uniform(low, high)

    def cost(widths: np.ndarray) -> float:
        return float(stairs.of(range(8), widths).sum())

    budget = cost(drawn)
    less = shift_to_total(drawn, low, high, budget, cost)
    assert np.all(less <= shift_to_total(drawn, low, high, budget * (1 + more), cost))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.05, 1), min_size=2, max_size=20),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 40),
    st.booleans(),
)
def test_random_budget_spends_the_budget_of_the_run_exactly(
    capacities, place, seed, channels, guarantee
) -> None:
    """What is not spent is owed, so the two sum to the budget; caps and floors hold in every round."""
    rng, caps = np.random.default_rng(seed), np.array(capacities)
    levels = np.arange(1, channels + 1) / max(channels, 1)
    prices = rng.uniform(10, 1000, size=(len(caps), 1)) * (levels + 3 * levels**2)
    costs = staircase(levels, prices) if channels else Costs()
    currency = "macs" if channels else "width"
    population = Population(caps, (1.0,), costs)
    bounds_of = POLICIES["random-budget"].value(budget=0.5, floor=0.05, guarantee=guarantee)
    floors, everybody = bounds_of.guaranteed(population), range(len(caps))
    least, most = costs.of(everybody, floors).mean(), costs.of(everybody, caps).mean()
    budget = float(least + place * (most - least))
    policy = bounds_of.model_copy(update={"budget": budget, "currency": currency})
    state, spent = policy.init(population), 0.0
    size = max(1, len(caps) // 2)
    for t in range(8):
        cohort = Cohort(t, tuple(sorted(rng.choice(len(caps), size, replace=False).tolist())))
        clients, owed = list(cohort.client_ids), state.extra.get("carry", 0.0)
        widths, state = policy.allocate(state, population, cohort, rng)
        given = np.array(list(widths.values()))
        assert np.all((floors[clients] <= given) & (given <= caps[clients]))
        if guarantee:
            assert np.all(given[population.largest[clients]] == caps[clients][population.largest[clients]])
        cost = costs.of(clients, given).sum()
        assert abs(state.extra["spent"] * size - cost) <= 1e-12 * cost
        spent += cost
        wanted = size * budget + owed
        nearest = np.clip(
            wanted, costs.of(clients, floors[clients]).sum(), costs.of(clients, caps[clients]).sum()
        )
        assert abs(cost - nearest) <= costs.largest_step + 1e-9 * most
    assert abs(spent + state.extra["carry"] - 8 * size * budget) < 1e-9 * max(1.0, most)
