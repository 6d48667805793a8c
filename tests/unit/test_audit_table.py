from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pingouin
import pytest
from scipy import stats

from widthwise.audit import Clients, correlations_of, pooled_table, resampling
from widthwise.audit.correlation import correlation, is_constant, ranks, residuals
from widthwise.audit.measure import audit_table
from widthwise.audit.resampling import affordable, bootstrap_interval, permutation_test
from widthwise.audit.table import COLUMNS
from widthwise.audit.verdict import sentence
from widthwise.core.errors import InputError

MARGINAL, CAPACITY, GIVEN, WIDTH = COLUMNS
TIERS = np.repeat([0.25, 0.5, 0.75, 1.0], 5)
UNDEFINED = {"r_estimate_divergence": None, "runs": 0}


def test_correlation_agrees_with_scipy_and_pingouin():
    rng = np.random.default_rng(1)
    z = rng.normal(size=15)
    x, y = z + rng.normal(size=15), 2 * z + rng.normal(size=15)
    assert float(correlation(x, y)) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)
    partial = pingouin.partial_corr(pd.DataFrame({"x": x, "y": y, "z": z}), x="x", y="y", covar="z")
    assert float(correlation(x, y, z)) == pytest.approx(partial["r"].iloc[0], abs=1e-10)


def test_spearman_agrees_with_scipy_and_pingouin_also_with_ties():
    rng = np.random.default_rng(12)
    z = rng.choice([0.25, 0.5, 1.0], size=18)
    x = np.round(z**2 + rng.normal(size=18), 1)
    y = np.exp(z + rng.normal(size=18))
    assert float(correlation(ranks(x), ranks(y))) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    frame = pd.DataFrame({"x": x, "y": y, "z": z})
    partial = pingouin.partial_corr(frame, x="x", y="y", covar="z", method="spearman")
    ours = float(correlation(ranks(x), ranks(y), ranks(z)))
    assert ours == pytest.approx(partial["r"].iloc[0], abs=1e-10)


def test_ranks_agree_with_scipy_on_every_row():
    values = np.random.default_rng(13).integers(0, 5, size=(6, 9)).astype(float)
    assert ranks(values) == pytest.approx(stats.rankdata(values, axis=-1))
    assert ranks(np.zeros(3)) == pytest.approx([2.0, 2.0, 2.0])


def test_correlation_of_many_rows_equals_one_row_at_a_time():
    rng = np.random.default_rng(2)
    x, y, z = rng.normal(size=(3, 7, 9))
    together = correlation(x, y, z)
    assert together == pytest.approx(
        [float(correlation(*row)) for row in zip(x, y, z, strict=True)], abs=1e-14
    )


def test_correlation_is_undefined_for_a_constant_and_for_a_line_in_capacity():
    x = np.array([1.0, 2.0, 4.0, 3.0])
    assert np.isnan(correlation(np.full(4, 0.1) * 3, x))
    assert np.isnan(correlation(0.1 * x + 0.7, np.array([1.0, 0.0, 2.0, 1.0]), x))


def test_residuals_remove_only_the_mean_when_given_is_constant():
    x = np.array([1.0, 2.0, 6.0])
    assert residuals(x, np.full(3, 0.3)) == pytest.approx(x - 3.0)


def test_is_constant_sees_through_rounding():
    assert is_constant(np.array([0.1 + 0.2, 0.3, 0.3]))
    assert not is_constant(np.array([0.3, 0.3, 0.3001]))


@pytest.mark.parametrize("size", [1e200, 1e-200, 1e-310])
def test_audit_table_measures_a_statistic_of_any_size(size):
    statistic, divergence = np.random.default_rng(14).uniform(1, 2, size=(2, 20))
    plain = audit_table(statistic, TIERS, divergence, permutations=99, bootstrap=99)
    moved = audit_table(size * statistic, TIERS, divergence, permutations=99, bootstrap=99)
    for column in (MARGINAL, CAPACITY, GIVEN):
        assert moved[column].value == pytest.approx(plain[column].value, abs=1e-9)
        assert moved.spearman[column] == plain.spearman[column]


@pytest.mark.parametrize(("origin", "by_ranks"), [(1e10, 1e-12), (-1e10, 1e-12), (1e12, 0.03)])
def test_audit_table_measures_differences_far_from_zero(origin, by_ranks):
    # float64 has steps of 1.9e-6 at 1e10 and of 1.2e-4 at 1e12: differences below 1 are data there. Rounding
    # to those steps moves r by about as much; ranks tie neighbours within 64 steps, at 1e12 within 0.014.
    statistic, divergence = np.random.default_rng(15).uniform(size=(2, 20))
    plain = audit_table(statistic, TIERS, divergence, permutations=99, bootstrap=99)
    moved = audit_table(origin + statistic, TIERS, divergence, permutations=99, bootstrap=99)
    for column in (MARGINAL, CAPACITY, GIVEN):
        assert moved[column].value == pytest.approx(plain[column].value, abs=1e-3)
        assert moved.spearman[column].value == pytest.approx(plain.spearman[column].value, abs=by_ranks)


@pytest.mark.parametrize("count", [4, 1_000, 100_000])
@pytest.mark.parametrize("origin", [0.0, 7.3, 1e6])
def test_residuals_of_a_line_are_zero_wherever_its_origin_lies(count, origin):
    given = origin + np.random.default_rng(16).choice([0.15, 0.3, 0.7], size=count)
    assert not residuals(0.1 * given + 0.7, given).any()
    assert not residuals(-3e5 * given, given).any()


def test_is_constant_sees_through_the_rounding_of_a_mean_of_many():
    assert is_constant(np.full(100_000, 0.1) * 3)


def test_affordable_makes_all_draws_up_to_1000_clients_then_fewer_down_to_199():
    found = [affordable(9_999, clients) for clients in (1, 1_000, 1_001, 2_000, 50_000, 10**6)]
    assert found == [9_999, 9_999, 9_989, 4_999, 199, 199]
    assert [affordable(draws, 10**6) for draws in (1, 198, 200)] == [1, 198, 199]


def test_audit_table_draws_less_for_many_clients_and_says_so():
    rng = np.random.default_rng(17)
    statistic, divergence = rng.normal(size=(2, 4_000))
    table = audit_table(statistic, np.resize(TIERS, 4_000), divergence, permutations=1_000, bootstrap=199)
    assert table[GIVEN].test == "permutation over random 250 arrangements"


def test_correlations_of_are_the_values_of_the_table():
    statistic, divergence, width = np.random.default_rng(18).normal(size=(3, 20))
    # The width is fixed by capacity, though no straight line in it: undefined by the table's rule.
    for width_now, undefined in ((width, 0), (np.minimum(TIERS, 0.6), 1)):
        clients = Clients(statistic, TIERS, divergence, width_now)
        found = correlations_of(clients)
        table = pooled_table([clients], permutations=9, bootstrap=9)
        assert found == {column: table[column].value for column in COLUMNS}
        assert list(found.values()).count(None) == undefined


def test_permutation_test_counts_every_arrangement_when_there_are_few():
    # Strata {a, b} and {c, d, e}: 2! * 3! = 12 arrangements. Centred x: (-1, 1), (-1, 0, 1); y the same, so
    # T observed = 2 + 2 = 4 is the largest of all; |T| = 4 also for both strata reversed. p = 2 / 12.
    x = np.array([1.0, 3.0, 10.0, 11.0, 12.0])
    y = np.array([7.0, 9.0, 0.0, 1.0, 2.0])
    found = permutation_test(x, y, np.array([0, 0, 1, 1, 1]), 12, np.random.default_rng(0))
    assert found is not None
    assert (found.p_value, found.arrangements, found.exact) == (2 / 12, 12, True)
    assert found.r == pytest.approx(1.0)
    assert str(found) == "permutation over all 12 arrangements"


def test_permutation_test_draws_when_there_are_many_and_agrees_with_counting():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 7))
    one = np.zeros(7)
    exact = permutation_test(x, y, one, 5040, rng)
    drawn = permutation_test(x, y, one, 5039, rng)
    assert exact is not None
    assert drawn is not None
    assert exact.exact
    assert not drawn.exact
    # Standard error of a share from 5,039 draws is at most 0.0071; five of them.
    assert drawn.p_value == pytest.approx(exact.p_value, abs=0.035)
    assert str(drawn) == "permutation over random 5,039 arrangements"


def test_permutation_test_p_value_agrees_with_scipy_over_all_clients():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(2, 6))
    ours = permutation_test(x, y, np.zeros(6), 720, rng)
    theirs = stats.permutation_test(
        (x,), lambda a: stats.pearsonr(a, y).statistic, permutation_type="pairings", n_resamples=720
    )
    assert ours is not None
    # scipy doubles the smaller tail, we count |T|: both tails together give ours.
    null = np.abs(theirs.null_distribution)
    assert ours.p_value == pytest.approx(np.mean(null >= abs(theirs.statistic) - 1e-12), abs=1e-12)


def test_permutation_test_never_gives_zero():
    x = np.arange(12.0)
    found = permutation_test(x, x, np.zeros(12), 99, np.random.default_rng(0))
    assert found is not None
    assert found.p_value == pytest.approx(1 / 100)


def test_permutation_test_is_none_when_nobody_can_be_exchanged():
    x = np.arange(5.0)
    assert permutation_test(x, x, x, 100, np.random.default_rng(0)) is None


def test_permutation_test_takes_strata_of_one_size_together_and_agrees_with_counting():
    # Strata of 2, 3, 2, 3 and 1 clients, mixed: 2! 3! 2! 3! = 144 arrangements.
    labels = np.array([0, 1, 2, 3, 1, 0, 3, 2, 1, 3, 4])
    x, y = np.random.default_rng(19).normal(size=(2, 11))
    exact = permutation_test(x, y, labels, 144, np.random.default_rng(0))
    assert exact.exact
    few = [permutation_test(x, y, labels, 143, np.random.default_rng(seed)) for seed in range(40)]
    assert not any(found.exact for found in few)
    # 40 x 143 = 5,720 draws: standard error 0.0066 at most, five of them and 1 / 144 for the + 1.
    assert np.mean([found.p_value for found in few]) == pytest.approx(exact.p_value, abs=0.04)


def test_permutation_test_does_not_depend_on_the_block_size(monkeypatch):
    x, y = np.random.default_rng(5).normal(size=(2, 12))
    whole = permutation_test(x, y, np.zeros(12), 500, np.random.default_rng(0))
    monkeypatch.setattr(resampling, "_BLOCK", 100)
    assert permutation_test(x, y, np.zeros(12), 500, np.random.default_rng(0)) == whole


def test_bootstrap_interval_agrees_with_scipy():
    rng = np.random.default_rng(6)
    x = rng.normal(size=30)
    y = x + rng.normal(size=30)
    ours = bootstrap_interval([(x, y)], correlation, 4000, np.random.default_rng(0))
    theirs = stats.bootstrap(
        (x, y),
        lambda a, b, axis: correlation(a, b),
        paired=True,
        n_resamples=4000,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert ours is not None
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.03)
    assert ours.degenerate == 0


def test_bootstrap_interval_leaves_out_and_counts_degenerate_resamples():
    # x is constant unless client 0 is drawn: P(not drawn) = (4/5)^5 = 0.328, so about 328 of 1,000.
    x, y = np.array([1.0, 0, 0, 0, 0]), np.array([1.0, 0, 2, 3, 1])
    found = bootstrap_interval([(x, y)], correlation, 1000, np.random.default_rng(0))
    assert found is not None
    assert 270 < found.degenerate < 400
    assert -1 <= found.low <= found.high <= 1


def test_bootstrap_interval_is_none_when_most_resamples_are_degenerate():
    x = np.array([1.0, 0, 0])
    y = np.array([1.0, 1, 0])
    assert bootstrap_interval([(x, y)], correlation, 300, np.random.default_rng(0)) is None


def test_audit_table_reproduces_hand_made_columns():
    rng = np.random.default_rng(7)
    statistic, divergence, width = rng.normal(size=(3, 20))
    table = audit_table(statistic, TIERS, divergence, width, permutations=199, bootstrap=200)
    assert table[MARGINAL].value == pytest.approx(stats.pearsonr(statistic, divergence).statistic)
    assert table[CAPACITY].value == pytest.approx(stats.pearsonr(statistic, TIERS).statistic)
    frame = pd.DataFrame({"s": statistic, "c": TIERS, "d": divergence, "w": width})
    assert table[GIVEN].value == pytest.approx(pingouin.partial_corr(frame, "s", "d", "c")["r"].iloc[0])
    assert table[WIDTH].value == pytest.approx(pingouin.partial_corr(frame, "w", "d", "c")["r"].iloc[0])
    assert [tier.clients for tier in table.within_tier] == [5, 5, 5, 5]
    ranked = pingouin.partial_corr(frame, "s", "d", "c", method="spearman")["r"].iloc[0]
    assert table.spearman[GIVEN].value == pytest.approx(ranked)
    assert table.spearman[CAPACITY].value == pytest.approx(stats.spearmanr(statistic, TIERS).statistic)
    rho = stats.spearmanr(statistic[5:10], divergence[5:10]).statistic
    assert table.spearman.within_tier[1].r_estimate_divergence == pytest.approx(rho)
    second = stats.pearsonr(statistic[5:10], divergence[5:10]).statistic
    assert table.within_tier[1].r_estimate_divergence == pytest.approx(second)
    for column in COLUMNS:
        assert 0 < table[column].p_value <= 1
        assert table[column].interval[0] <= table[column].value <= table[column].interval[1]
        assert (table[column].runs, table[column].run_interval) == (1, None)
    inside = [
        np.concatenate([v[t == TIERS] - v[t == TIERS].mean() for t in np.unique(TIERS)])
        for v in (statistic, divergence)
    ]
    assert table[GIVEN].tested == pytest.approx(stats.pearsonr(*inside).statistic)
    assert table[MARGINAL].tested == pytest.approx(table[MARGINAL].value)


def test_audit_table_is_the_same_for_the_same_seed_only():
    rng = np.random.default_rng(8)
    statistic, divergence = rng.normal(size=(2, 20))

    def make(seed: int):
        return audit_table(statistic, TIERS, divergence, permutations=99, bootstrap=99, seed=seed)

    assert make(1) == make(1)
    assert make(1)[GIVEN].interval != make(2)[GIVEN].interval


@pytest.mark.parametrize(
    ("change", "column", "reason"),
    [
        ({"statistic": np.ones(20)}, MARGINAL, "the statistic is the same for every client"),
        ({"statistic": np.ones(20)}, CAPACITY, "the statistic is the same for every client"),
        ({"statistic": np.ones(20)}, GIVEN, "the statistic is the same for every client"),
        ({"capacity": np.full(20, 0.5)}, CAPACITY, "the capacity is the same for every client"),
        ({"divergence": np.full(20, 0.2)}, MARGINAL, "the label divergence is the same for every client"),
        ({"statistic": 2 - TIERS**2}, GIVEN, "the statistic is the same for all clients of equal capacity"),
        ({"width": np.minimum(TIERS, 0.5)}, WIDTH, "the width is the same for all clients of equal capacity"),
        ({"width": np.full(20, 0.4)}, WIDTH, "the width is the same for every client"),
        ({"width": None}, WIDTH, "the width was not measured"),
        ({"statistic": None}, CAPACITY, "the statistic was not measured"),
        (
            {"capacity": np.arange(20) / 20, "width": np.arange(20) / 20},
            WIDTH,
            "the width is a straight line in capacity: nothing is left",
        ),
    ],
)
def test_audit_table_says_why_a_cell_is_undefined(change, column, reason):
    rng = np.random.default_rng(9)
    statistic, divergence, width = rng.uniform(0.1, 1, size=(3, 20))
    inputs = {"statistic": statistic, "capacity": TIERS, "divergence": divergence, "width": width} | change
    cell = audit_table(**inputs, permutations=99, bootstrap=99)[column]
    assert (cell.value, cell.p_value, cell.interval, cell.reason) == (None, None, None, reason)


def test_audit_table_holds_a_constant_capacity_fixed_by_doing_nothing():
    statistic, divergence = np.random.default_rng(10).normal(size=(2, 20))
    table = audit_table(statistic, np.full(20, 0.5), divergence, permutations=99, bootstrap=99)
    assert table[GIVEN].value == pytest.approx(table[MARGINAL].value, abs=1e-12)


def test_audit_table_has_no_p_value_given_capacity_when_no_two_clients_share_one():
    statistic, divergence = np.random.default_rng(11).normal(size=(2, 10))
    cell = audit_table(statistic, np.arange(1, 11) / 10, divergence, permutations=99, bootstrap=99)[GIVEN]
    assert cell.value is not None
    assert cell.p_value is None
    assert cell.reason == (
        "no two clients have the same capacity, so there is no p-value: round capacity to a few levels"
    )
    assert (cell.clients, cell.detectable_r) == (10, None)


def test_audit_table_takes_thousands_of_tiers():
    # Half of 5,000 clients share their capacity with one other, the rest with nobody: power by Fisher's z at
    # 1,250 degrees of freedom is 2.802 / sqrt(1,250) = 0.079.
    capacity = np.concatenate([np.repeat(np.arange(1, 1_251), 2), np.arange(2_000, 4_500)])
    data, noise = np.random.default_rng(20).normal(size=(2, 5_000))
    fast = {"permutations": 199, "bootstrap": 1}
    table = audit_table(0.5 * data + noise + 1e-3 * capacity, capacity, data, **fast)
    assert table[GIVEN].p_value == pytest.approx(1 / 200)
    assert table[GIVEN].tested == pytest.approx(0.5 / np.sqrt(1.25), abs=0.1)  # standard error 0.023
    assert table[GIVEN].detectable_r == pytest.approx(0.079, abs=5e-3)
    assert len(table.within_tier) == 3_750
    apart = audit_table(noise, np.arange(5_000), data, **fast)
    assert (apart[GIVEN].p_value, apart[GIVEN].detectable_r) == (None, None)
    assert sentence(apart).count("round capacity to a few levels") == 1


def test_audit_table_leaves_small_and_constant_tiers_open():
    capacity = np.array([0.25, 0.25, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0])
    statistic = np.array([1.0, 2, 3, 3, 3, 1, 2, 3])
    divergence = np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.2, 0.1])
    tiers = audit_table(statistic, capacity, divergence, permutations=9, bootstrap=9).within_tier
    assert [t.to_json() for t in tiers[:2]] == [
        {**UNDEFINED, "tier": 0.25, "clients": 2, "reason": "fewer than 3 clients"},
        {**UNDEFINED, "tier": 0.5, "clients": 3, "reason": "no variation inside the tier"},
    ]
    assert tiers[2].r_estimate_divergence == pytest.approx(-1.0)
    assert (tiers[2].runs, tiers[2].clients) == (1, 3)


def test_audit_table_leaves_everything_open_for_two_clients():
    table = audit_table([1, 2], [0.5, 1.0], [0.1, 0.2], [0.5, 1.0])
    assert [table[c].value for c in COLUMNS] == [None] * 4
    assert table[GIVEN].reason == "there are fewer than 4 clients"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"statistic": [1.0, np.nan, 2.0]}, r"statistic is nan for client 1, but every value must be finite"),
        ({"capacity": []}, r"capacity is of shape \(0,\), but it must hold one number per client"),
        (
            {"statistic": [1.0]},
            r"statistic is of shape \(1,\), but it must hold one number for each of 3 clients",
        ),
        ({"divergence": [[1.0]]}, r"divergence is of shape \(1, 1\), but it must hold one number"),
    ],
)
def test_audit_table_refuses_bad_arrays(change, message):
    inputs = {"statistic": [1, 2, 3], "capacity": [0.5, 0.5, 1.0], "divergence": [0.1, 0.2, 0.3]} | change
    with pytest.raises(InputError, match=message):
        audit_table(**inputs)


@pytest.mark.parametrize("count", [0, -1])
def test_audit_table_refuses_no_resamples(count):
    with pytest.raises(InputError, match=f"permutations is 9 and bootstrap is {count}, but both must be"):
        audit_table([1, 2, 3], [1, 2, 3], [1, 2, 3], permutations=9, bootstrap=count)


def test_audit_table_is_free_of_nan_as_json():
    table = audit_table(np.ones(5), [0.5] * 5, [0.1] * 5, [1.0] * 5)
    json.dumps(table.to_json(), allow_nan=False)
