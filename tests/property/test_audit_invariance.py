from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widthwise.audit import audit_table
from widthwise.audit.correlation import correlation, residuals
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
    for cell in table.cells.values():
        numbers = [cell.value, cell.p_value, *(cell.interval or ())]
        assert all(number is None or np.isfinite(number) for number in numbers)
        assert cell.reason or None not in numbers
        assert cell.value is None or -1 <= cell.value <= 1
