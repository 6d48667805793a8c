"""How often the audit is wrong, by simulation with fixed seeds."""

from __future__ import annotations

import numpy as np
from scipy import stats

from widthwise.audit.correlation import correlation
from widthwise.audit.resampling import bootstrap_interval, permutation_test

TIERS = np.repeat([0.25, 0.5, 0.75, 1.0], [7, 7, 3, 3])
REPLICATIONS = 400


def _rejections(data_link: float, rng: np.random.Generator) -> int:
    """Count p <= 0.05 over replications of 20 clients whose statistic bends with capacity."""
    count = 0
    for _ in range(REPLICATIONS):
        # Label divergence that leans on capacity by chance or by design is what confounds the audit.
        divergence = 0.3 * TIERS + rng.uniform(0, 0.3, size=20)
        statistic = 1 / TIERS**2 + data_link * divergence + rng.normal(size=20)
        found = permutation_test(statistic, divergence, TIERS, 299, rng)
        assert found is not None
        count += found.p_value <= 0.05
    return count


def test_permutation_test_within_tiers_has_its_false_alarm_rate_on_capacity_and_noise():
    # P(p <= 0.05) = 15/300 = 0.05 exactly when x is exchangeable inside tiers. 400 replications: 20 expected,
    # sd 4.36; 7..36 is the central 99.9 % of Binomial(400, 0.05): fails by chance once in 1,000 seeds.
    assert 7 <= _rejections(0.0, np.random.default_rng(101)) <= 36


def test_linear_partial_correlation_alone_would_raise_false_alarms():
    # Why p-values do not come from the partial correlation: a bent dependence on capacity leaks through the
    # straight line. Its textbook p-value is below 0.05 far more often than 5 % when divergence bends as well.
    rng = np.random.default_rng(102)
    alarms = 0
    for _ in range(200):
        divergence = 0.1 / TIERS**2 + rng.normal(scale=0.3, size=20)
        statistic = 1 / TIERS**2 + rng.normal(size=20)
        r = float(correlation(statistic, divergence, TIERS))
        alarms += 2 * stats.t.sf(abs(r) * np.sqrt(17 / (1 - r * r)), 17) <= 0.05
    assert alarms > 60


def test_permutation_test_within_tiers_finds_a_planted_data_signal():
    # Inside tiers the signal has sd 12 * 0.3 / sqrt(12) = 1.04 against noise of sd 1: r = 0.72 at 16 degrees
    # of freedom, power above 0.9; 320 of 400 leaves more than five standard errors.
    assert _rejections(12.0, np.random.default_rng(103)) >= 320


def test_bootstrap_interval_covers_the_true_correlation():
    # Percentile intervals are a little short at 20 clients: 0.90 to 0.97 is expected; 200 replications have a
    # standard error of 0.018, so 0.85 lies more than three of them away.
    rng = np.random.default_rng(104)
    truth = 0.6
    covered = 0
    for _ in range(200):
        x = rng.normal(size=20)
        y = truth * x + np.sqrt(1 - truth**2) * rng.normal(size=20)
        found = bootstrap_interval([(x, y)], correlation, 300, rng)
        assert found is not None
        covered += found.low <= truth <= found.high
    assert covered / 200 > 0.85
