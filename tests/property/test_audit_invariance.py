from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widthwise.audit import Clients, audit_table, pooled_table
from widthwise.audit.correlation import correlation, ranks, ranks_again, residuals
from widthwise.audit.resampling import permutation_test

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=25, deadline=None)


def _clients(seed: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=count), rng.uniform(size=count), rng.choice([0.25, 0.5, 1.0], size=count)


@few
@given(seeds, st.integers(4, 30), st.floats(0.01, 100), st.floats(-10, 10))
def test_correlation_keeps_its_size_when_units_change(seed, count, scale, shift):
    x, y, z = _clients(seed, count)
    r = correlation(x, y, z)
    for factor in (scale, -scale):
        moved = correlation(factor * x + shift, y, 2 * z - 1)
        assert moved == pytest.approx(np.sign(factor) * r, abs=1e-6, nan_ok=True)


@few
@given(seeds, st.integers(4, 30))
def test_residuals_are_orthogonal_to_what_was_removed(seed, count):
    x, _, z = _clients(seed, count)
    left = residuals(x, z)
    assert left.sum() == pytest.approx(0, abs=1e-9)
    assert left @ z == pytest.approx(0, abs=1e-9)
    assert residuals(left, z) == pytest.approx(left, abs=1e-9)


@few
@given(seeds, st.integers(2, 7))
def test_permutation_test_by_counting_ignores_the_order_of_clients_and_units(seed, count):
    x, y, z = _clients(seed, count)
    found = permutation_test(x, y, z, 5040, np.random.default_rng(0))
    order = np.random.default_rng(seed).permutation(count)
    moved = permutation_test(3 * x[order] + 1, -y[order], z[order], 5040, np.random.default_rng(0))
    if found is None or moved is None:
        assert found is moved is None
        return
    assert found.exact
    assert found.p_value == pytest.approx(moved.p_value)
    assert 1 / found.arrangements - 1e-12 <= found.p_value <= 1


@few
@given(seeds, st.integers(1, 12), st.booleans(), st.booleans())
def test_audit_table_never_holds_nan(seed, count, flat_estimate, flat_capacity):
    x, y, z = _clients(seed, count)
    x = np.ones(count) if flat_estimate else x
    z = np.full(count, 0.5) if flat_capacity else z
    table = audit_table(x, z, y, np.minimum(z, 0.5), permutations=50, bootstrap=50)
    for cell in (*table.pearson.cells.values(), *table.spearman.cells.values()):
        numbers = [cell.value, cell.p_value, *(cell.interval or ())]
        assert cell.tested is None or np.isfinite(cell.tested)
        assert all(number is None or np.isfinite(number) for number in numbers)
        assert cell.reason or None not in numbers
        assert cell.value is None or -1 <= cell.value <= 1


@few
@given(seeds, st.integers(2, 30))
def test_ranks_do_not_change_when_the_values_are_bent(seed, count):
    x, _, z = _clients(seed, count)
    assert ranks(np.exp(x)) == pytest.approx(ranks(x))
    assert ranks(-z) == pytest.approx(count + 1 - ranks(z))
    assert ranks(z).sum() == pytest.approx(count * (count + 1) / 2)


@few
@given(seeds, st.integers(1, 30))
def test_ranks_again_counts_what_ranks_would_sort(seed, count):
    rng = np.random.default_rng(seed)
    ranked = ranks(np.stack([rng.normal(size=count), rng.integers(0, 4, size=count)]))
    drawn = ranked[:, rng.integers(0, count, size=count)]
    assert np.array_equal(ranks_again(drawn), ranks(drawn))


@few
@given(
    seeds,
    st.sampled_from([-1000, -660, 0, 660, 1000]),
    st.sampled_from(["statistic", "capacity", "divergence"]),
)
def test_audit_table_is_the_same_in_units_of_any_size(seed, exponent, name):
    # Powers of two round nothing, so that every digit must stay; 2^660 is about 1e200.
    x, y, z = _clients(seed, 12)
    inputs = {"statistic": x, "capacity": z, "divergence": y}
    fast = {"permutations": 19, "bootstrap": 19}
    table = audit_table(**inputs, **fast)
    moved = audit_table(**inputs | {name: np.ldexp(inputs[name], exponent)}, **fast)
    assert (moved.pearson.cells, moved.spearman.cells) == (table.pearson.cells, table.spearman.cells)


@settings(max_examples=8, deadline=None)
@given(seeds, st.integers(4, 20), st.floats(0.01, 100), st.floats(-10, 10))
def test_pooled_table_compares_no_clients_across_runs(seed, count, scale, shift):
    x, y, z = _clients(seed, count)
    other = _clients(seed + 1, count)
    fast = {"permutations": 49, "bootstrap": 1}
    table = pooled_table([Clients(x, z, y), Clients(*(other[i] for i in (0, 2, 1)))], **fast)
    moved = pooled_table([Clients(scale * x + shift, z, y), Clients(*(other[i] for i in (0, 2, 1)))], **fast)
    for column, cell in table.cells.items():
        assert moved[column].value == pytest.approx(cell.value, abs=1e-6)
        assert moved[column].p_value == pytest.approx(cell.p_value, abs=0.021)  # one tie of 49 at most
