"""How often the audit is wrong, by simulation with fixed seeds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from widthwise.audit.correlation import METHODS, correlation
from widthwise.audit.power import Design, smallest_detectable
from widthwise.audit.resampling import (
    bootstrap_interval,
    permutation_test,
    pooled_permutation_test,
    t_interval,
)

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


CAPACITY_EFFECTS: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "linear": lambda c, rng: -3 * c + rng.normal(size=c.shape),
    "bent": lambda c, rng: 1 / c**2 + rng.normal(size=c.shape),
    "bent, spread by tier": lambda c, rng: 1 / c**2 + rng.standard_t(3, size=c.shape) / c,
}


@pytest.mark.parametrize("effect", CAPACITY_EFFECTS)
@pytest.mark.parametrize("runs", [1, 3])
def test_audit_has_its_false_alarm_rate_whatever_capacity_does_to_the_statistic(runs, effect):
    # The statistic is capacity plus noise; divergence bends with capacity too, and every run draws its own
    # capacities and scale. P(p <= 0.05) = 5/100 exactly, pooled or not. 300 replications: 15 expected, sd
    # 3.8; 3..31 has probability 0.9999 under Binomial(300, 0.05). One of the 12 counts fails by chance in one
    # of 1,000 seeds.
    rng = np.random.default_rng([105, runs, len(effect)])
    alarms = dict.fromkeys(METHODS, 0)
    for _ in range(300):
        clients = []
        for _ in range(runs):
            capacity = rng.permutation(TIERS)[: rng.integers(14, 21)]
            statistic = 10 ** rng.uniform(-2, 2) * CAPACITY_EFFECTS[effect](capacity, rng)
            clients.append((statistic, 0.1 / capacity + rng.uniform(0, 0.3, size=capacity.shape), capacity))
        for method, prepare in METHODS.items():
            prepared = [(prepare(x), prepare(y), strata) for x, y, strata in clients]
            alarms[method] += _p_value(prepared, 99, rng) <= 0.05
    assert all(3 <= count <= 31 for count in alarms.values()), alarms


def _p_value(clients: list[tuple], permutations: int, rng: np.random.Generator) -> float:
    found = pooled_permutation_test(clients, permutations, rng)
    assert found is not None
    return found.p_value


def _share_found(design: Design, rho: float, rng: np.random.Generator, replications: int) -> float:
    """Return how often the audit finds a link of rho inside tiers under a strong, bent capacity effect."""
    found = 0
    for _ in range(replications):
        clients = []
        for sizes in design:
            capacity = np.repeat(np.arange(1, len(sizes) + 1) / len(sizes), sizes)
            data = rng.normal(size=len(capacity))
            noise = np.sqrt(1 - rho**2) * rng.normal(size=len(capacity))
            clients.append((5 / capacity**2 + rho * data + noise, data + capacity, capacity))
        found += _p_value(clients, 199, rng) <= 0.05
    return found / replications


@pytest.mark.parametrize(
    "design",
    [((7, 7, 3, 3),), ((5, 5, 5, 5),), ((7, 7, 3, 3), (6, 8, 4, 2), (9, 5, 1, 5)), ((3, 3), (4, 2))],
)
def test_power_statement_is_the_share_of_planted_links_that_are_found(design):
    # 400 replications: standard error 0.02; four of them, and 0.03 for the statement's own rounding of r, the
    # 199 arrangements and the steps of p in small designs. Fails by chance once in 15,000 seeds.
    share = _share_found(design, smallest_detectable(design), np.random.default_rng(106), 400)
    assert share == pytest.approx(0.8, abs=0.11)


def test_link_below_the_power_statement_is_missed_more_often_than_stated():
    design = ((7, 7, 3, 3),)
    weaker = smallest_detectable(design) - 0.15
    # Expected 0.56; 0.7 lies 4.9 standard errors (0.029) above.
    assert _share_found(design, weaker, np.random.default_rng(107), 300) < 0.7


def _coverage(runs: int, spread: float, replications: int, rng: np.random.Generator) -> tuple[float, float]:
    """Return how often the t interval and the bootstrap of pooled runs cover the mean true correlation.

    Each run has 20 clients and a true correlation of its own, normal around 0 and cut at 0.95, so that 0 is
    their mean exactly.
    """
    by_t = by_bootstrap = 0
    for _ in range(replications):
        drawn = []
        for rho in np.clip(spread * rng.normal(size=runs), -0.95, 0.95):
            data = rng.normal(size=20)
            drawn.append((data, rho * data + np.sqrt(1 - rho**2) * rng.normal(size=20)))
        found = bootstrap_interval(drawn, correlation, 200, rng)
        assert found is not None
        by_bootstrap += found.low <= 0 <= found.high
        low, high = t_interval([float(correlation(*run)) for run in drawn])
        by_t += low <= 0 <= high
    return by_t / replications, by_bootstrap / replications


def test_t_interval_over_three_runs_covers_and_the_bootstrap_does_not_when_runs_differ():
    # What docs/audit.md states: 0.94 to 0.95 and 0.86 (3,000 replications with 400 resamples gave 0.944 and
    # 0.860). Standard errors with 600 replications are 0.0094 and 0.0142: four of them.
    by_t, by_bootstrap = _coverage(3, 0.4, 600, np.random.default_rng(108))
    assert by_t == pytest.approx(0.944, abs=0.038)
    assert by_bootstrap == pytest.approx(0.860, abs=0.057)
    assert by_t > by_bootstrap


def test_bootstrap_over_three_runs_is_rather_too_wide_when_runs_do_not_differ():
    # 0.97 expected, standard error 0.0085 with 400 replications: four below and three above.
    by_t, by_bootstrap = _coverage(3, 0.0, 400, np.random.default_rng(109))
    assert by_t == pytest.approx(0.945, abs=0.046)
    assert 0.935 < by_bootstrap < 0.995
