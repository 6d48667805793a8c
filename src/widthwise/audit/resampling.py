"""Permutation tests within strata and bootstrap intervals, vectorised over resamples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations as orders
from math import factorial, prod

import numpy as np

from widthwise.audit.correlation import Array, correlation

# Resamples are drawn in blocks of about this many numbers, so that memory stays flat for many clients.
_BLOCK = 2_000_000
# Two statistics that differ by less than this share of their scale are a tie that rounding has split.
_TIE = 1e-10


@dataclass(frozen=True)
class PermutationTest:
    """A p-value and how it was found.

    Attributes:
        p_value: Two-sided.
        arrangements: How many arrangements of the values were looked at.
        exact: Whether these were all there are; otherwise they were drawn at random.
    """

    p_value: float
    arrangements: int
    exact: bool

    def __str__(self) -> str:
        kind = "all" if self.exact else "random"
        return f"permutation over {kind} {self.arrangements:,} arrangements"


def permutation_test(
    x: Array, y: Array, strata: Array, permutations: int, rng: np.random.Generator
) -> PermutationTest | None:
    """Test whether x and y are linked inside strata, by permuting x within each stratum.

    Formula: T = sum_i x_i y_i, centred by its mean over all arrangements, so that only what happens
    *inside* strata counts; p = share of arrangements with |T| >= |T observed|. All arrangements are
    looked at where there are at most ``permutations`` of them (the observed one is among them); otherwise
    that many are drawn and p = (k + 1) / (n + 1). Both are valid at every sample size: P(p <= a) <= a when x
    is exchangeable inside strata.
    Source: Phipson and Smyth (2010), "Permutation p-values should never be zero", for the + 1.

    Args:
        x: [N] values that are permuted.
        y: [N] values that stay.
        strata: [N] labels; clients are exchanged only with clients of the same label.
        permutations: Number of arrangements that may be looked at.
        rng: Source of the random arrangements.

    Returns:
        The test, or None where no two clients share a stratum, so that nothing can be exchanged.
    """
    members = [np.flatnonzero(strata == label) for label in np.unique(strata)]
    # A stratum of one has one arrangement and adds 0 to the centred statistic.
    pairs = [(x[m] - x[m].mean(), y[m] - y[m].mean()) for m in members if len(m) > 1]
    if not pairs:
        return None
    observed = sum(float(a @ b) for a, b in pairs)
    bar = abs(observed) - _TIE * sum(float(np.linalg.norm(a) * np.linalg.norm(b)) for a, b in pairs)
    total = prod(factorial(len(a)) for a, _ in pairs)
    if total <= permutations:
        sums = np.zeros(1)
        for a, b in pairs:
            sums = np.add.outer(sums, np.array(list(orders(a))) @ b).ravel()
        return PermutationTest(float(np.mean(np.abs(sums) >= bar)), total, exact=True)
    extreme = 0
    for rows in _blocks(permutations, len(x)):
        drawn = sum(rng.permuted(np.tile(a, (rows, 1)), axis=1) @ b for a, b in pairs)
        extreme += int(np.sum(np.abs(drawn) >= bar))
    return PermutationTest((extreme + 1) / (permutations + 1), permutations, exact=False)


@dataclass(frozen=True)
class Interval:
    """A percentile bootstrap interval.

    Attributes:
        low: Lower end.
        high: Upper end.
        degenerate: Resamples left out because the correlation is undefined in them.
    """

    low: float
    high: float
    degenerate: int


def bootstrap_interval(
    x: Array,
    y: Array,
    given: Array | None,
    resamples: int,
    rng: np.random.Generator,
    level: float = 0.95,
) -> Interval | None:
    """Return the percentile interval of the (partial) correlation when clients are drawn with replacement.

    Args:
        x: [N].
        y: [N].
        given: [N] or None, as in ``correlation``.
        resamples: Number of bootstrap samples.
        rng: Source of the resamples.
        level: Coverage that is aimed at.

    Returns:
        The interval, or None where the correlation is undefined in more than half of the resamples.
    """
    count = len(x)
    values = []
    for rows in _blocks(resamples, count):
        pick = rng.integers(0, count, size=(rows, count))
        values.append(correlation(x[pick], y[pick], None if given is None else given[pick]))
    found = np.concatenate(values)
    defined = found[np.isfinite(found)]
    if 2 * len(defined) < resamples:
        return None
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), resamples - len(defined))


def _blocks(rows: int, columns: int) -> Iterator[int]:
    step = max(1, _BLOCK // columns)
    for start in range(0, rows, step):
        yield min(step, rows - start)
