from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from widthwise.audit import Clients, audit_table, pooled_table
from widthwise.audit.correlation import correlation
from widthwise.audit.resampling import bootstrap_interval, t_interval
from widthwise.audit.table import COLUMNS
from widthwise.audit.text import cell_parts, detectable_text
from widthwise.audit.verdict import sentence
from widthwise.core.errors import InputError

MARGINAL, CAPACITY, GIVEN, WIDTH = COLUMNS
TIERS = np.repeat([0.25, 0.5, 1.0], 4)
FAST = {"permutations": 199, "bootstrap": 100}


def _run(seed: int, level: float = 0.0, scale: float = 1.0) -> Clients:
    statistic, divergence, width = np.random.default_rng(seed).normal(size=(3, 12))
    return Clients(level + scale * statistic, TIERS, divergence, width)


def test_pooled_table_of_one_run_is_its_audit_table():
    one = _run(1)
    alone = audit_table(one.statistic, one.capacity, one.divergence, one.width, **FAST)
    assert pooled_table([one], **FAST) == alone
    assert (alone.runs, alone[GIVEN].runs, alone[GIVEN].run_interval) == (1, 1, None)


def test_pooled_table_holds_the_mean_over_runs_whatever_their_levels_and_units():
    runs = [_run(1), _run(2, level=50.0), _run(3, scale=1e4)]
    pooled = pooled_table(runs, **FAST)
    alone = [pooled_table([run], **FAST) for run in runs]
    assert (pooled.runs, pooled.clients) == (3, 36)
    for kind in ("pearson", "spearman"):
        for column in COLUMNS:
            cell = getattr(pooled, kind)[column]
            ones = [getattr(table, kind)[column] for table in alone]
            assert cell.runs == 3
            assert cell.value == pytest.approx(np.mean([one.value for one in ones]))
            assert cell.tested == pytest.approx(np.mean([one.tested for one in ones]))
            assert cell.run_interval == pytest.approx(t_interval([one.value for one in ones]))
            assert cell.interval[0] < cell.value < cell.interval[1]
    tier = pooled.within_tier[0]
    assert (tier.tier, tier.clients) == (0.25, 12)
    assert tier.r_estimate_divergence == pytest.approx(
        np.mean([table.within_tier[0].r_estimate_divergence for table in alone])
    )


def test_pooled_table_counts_all_arrangements_within_runs():
    # Two runs of 3 clients of one capacity: 3! * 3! = 36 arrangements. Run 1 falls in line (r = 1), run 2 has
    # ranks (1, 3, 2) against (1, 2, 3): r = 0.5, mean 0.75. Each run's r is one of 1, .5, .5, -.5, -.5, -1.
    # The sum is at least 1.5 for (1, 1), twice for (1, .5) and twice for (.5, 1): 5, and 5 below: 10 / 36.
    runs = [Clients(x, [0.5] * 3, [1, 2, 3]) for x in ([1, 2, 3], [10, 30, 20])]
    cell = pooled_table(runs, permutations=36, bootstrap=10)[MARGINAL]
    assert cell.test == "permutation over all 36 arrangements"
    assert cell.value == pytest.approx(0.75)
    assert cell.p_value == pytest.approx(10 / 36)


def test_pooled_table_tests_together_what_no_run_shows_alone():
    rng = np.random.default_rng(4)
    runs = []
    for _ in range(6):
        divergence = rng.normal(size=12)
        runs.append(Clients(0.6 * divergence + rng.normal(size=12) - 3 * TIERS, TIERS, divergence))
    alone = [pooled_table([run], **FAST)[GIVEN].p_value for run in runs]
    assert sum(p <= 0.05 for p in alone) < 3
    assert pooled_table(runs, permutations=999, bootstrap=10)[GIVEN].p_value <= 0.01


def test_pooled_table_states_for_each_figure_the_runs_it_rests_on():
    # 12 clients each; the second run has no statistic that varies, the third one capacity, the fourth none
    # measured. Widths were measured in the first alone.
    full, noise = _run(1), np.random.default_rng(7).normal(size=(2, 12))
    flat = Clients(np.ones(12), TIERS, np.arange(12.0))
    level = Clients(noise[0], np.full(12, 0.5), noise[1])
    missing = Clients(None, TIERS, np.arange(12.0))
    pooled = pooled_table([full, flat, level, missing], **FAST)
    assert (pooled.runs, pooled.clients) == (4, 48)
    rests_on = {MARGINAL: [full, level], CAPACITY: [full], GIVEN: [full, level], WIDTH: [full]}
    unlike, unmeasured = "the statistic is the same for every client", "the statistic was not measured"
    for column, runs in rests_on.items():
        cell, alone = pooled[column], pooled_table(runs, **FAST)[column]
        assert (cell.runs, cell.clients) == (len(runs), 12 * len(runs))
        found = cell.value, cell.p_value, cell.run_interval, cell.interval, cell.detectable_r
        assert found == (alone.value, alone.p_value, alone.run_interval, alone.interval, alone.detectable_r)
    assert pooled[CAPACITY].left_out == (unlike, "the capacity is the same for every client", unmeasured)
    assert pooled[WIDTH].left_out == ("the width was not measured",) * 3
    assert pooled.to_json()["basis"][MARGINAL] == {
        "runs": 2,
        "clients": 24,
        "detectable_r": pooled[MARGINAL].detectable_r,
        "left_out": [unlike, unmeasured],
    }
    assert (
        pooled.power.smallest_detectable_r == pooled_table([full, level], **FAST).power.smallest_detectable_r
    )
    # Capacity 0.5: 4 clients of the first run and 12 of the third; 0.25: those of the first alone.
    tiers = {tier.tier: (tier.runs, tier.clients) for tier in pooled.within_tier}
    assert tiers == {0.25: (1, 4), 0.5: (2, 16), 1.0: (1, 4)}


def test_sentence_and_cells_of_a_pool_say_how_many_runs_they_rest_on():
    flat = Clients(np.ones(12), TIERS, np.arange(12.0))
    pooled = pooled_table([_run(1), flat, _run(2)], **FAST)
    words = sentence(pooled)
    assert words.startswith("Over these 3 runs the statistic ")
    assert words.count("95 % interval over 2 of 3 runs") == 2
    value, _, over, bootstrap = cell_parts(pooled[GIVEN])
    assert value == f"{pooled[GIVEN].value:+.2f}"
    assert over.startswith("t over 2 of 3 runs [")
    assert bootstrap.startswith("bootstrap [")
    single = pooled_table([_run(1), flat], **FAST)
    assert "in 1 of 2 runs" in cell_parts(single[GIVEN])
    assert sentence(single).count(", in 1 of 2 runs)") == 2


def test_pooled_table_without_any_correlation_says_why():
    flat = Clients(np.ones(12), TIERS, np.arange(12.0))
    nothing = pooled_table([flat, flat], **FAST)
    cell = nothing[GIVEN]
    assert (cell.value, cell.runs, cell.clients, cell.detectable_r) == (None, 0, 0, None)
    assert cell.reason == "the statistic is the same for every client"
    assert cell.left_out == (cell.reason,) * 2
    assert detectable_text(cell) == "–"
    assert [(tier.runs, tier.clients) for tier in nothing.within_tier] == [(0, 8)] * 3


def test_pooled_table_takes_runs_of_different_sizes_and_tiers():
    rng = np.random.default_rng(5)
    small = Clients(rng.normal(size=6), [0.5, 0.5, 0.5, 1, 1, 1], rng.normal(size=6))
    pooled = pooled_table([_run(1), small], **FAST)
    assert [(tier.tier, tier.clients) for tier in pooled.within_tier] == [(0.25, 4), (0.5, 7), (1.0, 7)]
    assert pooled[GIVEN].p_value is not None


def test_pooled_table_refuses_no_runs():
    with pytest.raises(
        InputError, match=r"the list of runs is empty, but an audit needs at least one\. Pass"
    ):
        pooled_table([])


def test_bootstrap_over_runs_spreads_as_two_levels_do():
    # 40 runs of 10 clients whose true correlations differ: the mean's standard error holds both levels. With
    # many runs, resampling runs gives var(r) / K, and resampling clients adds the mean of their variances /
    # K.
    rng = np.random.default_rng(6)
    runs = []
    for _ in range(40):
        x = rng.normal(size=10)
        rho = rng.uniform(-0.9, 0.9)
        runs.append((x, rho * x + np.sqrt(1 - rho**2) * rng.normal(size=10)))
    found = bootstrap_interval(runs, correlation, 2000, np.random.default_rng(0))
    assert found is not None
    one = [bootstrap_interval([run], correlation, 500, np.random.default_rng(1)) for run in runs]
    inner = np.mean([((i.high - i.low) / 3.92) ** 2 for i in one if i is not None])
    outer = np.var([float(correlation(*run)) for run in runs], ddof=1)
    assert (found.high - found.low) / 3.92 == pytest.approx(np.sqrt((inner + outer) / 40), rel=0.15)


def test_t_interval_agrees_with_scipy_and_stays_a_correlation():
    values = [-0.7, -0.2, -0.4]
    expected = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert t_interval(values) == pytest.approx((max(-1.0, expected[0]), expected[1]))
    assert t_interval([-0.9, 0.9]) == (-1.0, 1.0)
    assert t_interval([0.3]) is None
