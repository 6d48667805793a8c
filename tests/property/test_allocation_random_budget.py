from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from widthwise.allocation import POLICIES, Population
from widthwise.allocation.random_budget import shift_to_sum
from widthwise.core.records import Cohort

unit = st.floats(0, 1)
rows = st.lists(st.tuples(unit, unit, unit), min_size=1, max_size=12)


def bounds(triples: list[tuple[float, float, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values between lower and upper bounds."""
    ordered = np.sort(np.array(triples), axis=1)
    return ordered[:, 1], ordered[:, 0], ordered[:, 2]


@settings(max_examples=150, deadline=None)
@given(rows, unit)
def test_shift_to_sum_hits_every_sum_that_the_bounds_allow(triples, share) -> None:
    values, low, high = bounds(triples)
    total = low.sum() + share * (high.sum() - low.sum())
    shifted = shift_to_sum(values, low, high, total)
    assert np.all((low <= shifted) & (shifted <= high))
    assert abs(shifted.sum() - total) <= 1e-12 * len(values)


@settings(max_examples=100, deadline=None)
@given(rows, st.floats(-3, 15))
def test_shift_to_sum_takes_the_nearest_sum_when_the_bounds_do_not_allow_it(triples, total) -> None:
    values, low, high = bounds(triples)
    nearest = np.clip(total, low.sum(), high.sum())
    assert abs(shift_to_sum(values, low, high, total).sum() - nearest) <= 1e-12 * len(values)


@settings(max_examples=100, deadline=None)
@given(rows, unit)
def test_shift_to_sum_moves_all_values_one_way_and_by_one_amount_inside_the_bounds(triples, share) -> None:
    values, low, high = bounds(triples)
    moved = shift_to_sum(values, low, high, share * high.sum()) - values
    assert np.all(moved >= -1e-12) or np.all(moved <= 1e-12)
    after = values + moved
    inside = (after > low + 1e-9) & (after < high - 1e-9)
    assert np.allclose(moved[inside], moved[inside].mean() if inside.any() else 0, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.05, 1), min_size=2, max_size=20),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_random_budget_spends_the_budget_of_the_run_exactly(capacities, place, seed) -> None:
    population = Population(np.array(capacities), (1.0,))
    budget = 0.05 + place * (float(np.mean(capacities)) - 0.05)
    policy = POLICIES["random-budget"].value(budget=budget, floor=0.05)
    state, rng, spent = policy.init(population), np.random.default_rng(seed), 0.0
    size = max(1, len(capacities) // 2)
    for t in range(8):
        cohort = Cohort(t, tuple(sorted(rng.choice(len(capacities), size, replace=False).tolist())))
        widths, state = policy.allocate(state, population, cohort, rng)
        spent += sum(widths.values())
    assert abs(spent + state.extra["carry"] - 8 * size * budget) < 1e-9
