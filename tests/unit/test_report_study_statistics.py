"""Intervals over seeds, pairing, verdicts: pure functions on made-up numbers."""

from __future__ import annotations

import math

import pytest
from scipy.stats import ttest_1samp

from widthwise.report.study.claims import OVER_TASKS, Finding, judge, outcomes
from widthwise.report.study.statistics import Estimate, estimate, paired, pooled
from widthwise.studies.claims import Claim, Contrast, Region


def test_estimate_gives_the_interval_of_a_t_test():
    values = [1.0, 4.0, 2.5, 3.0]
    found = estimate(values)
    other = ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((other.low, other.high))
    assert found.n == 4


def test_estimate_of_three_seeds_reaches_2_48_sd():
    found = estimate([1.0, 2.0, 3.0])
    # t(0.975; 2) = 4.3027 (tables), over the root of 3: 2.484.
    assert found.high - found.mean == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


def test_estimate_of_one_seed_has_no_interval_and_of_none_is_none():
    assert estimate([3.0]) == Estimate(3.0, None, 1)
    assert estimate([]) is None


def test_estimate_ends_at_the_limits():
    # 2.484 sd (see above) to each side of -.9 would be -1.148 to -.652.
    found = estimate([-0.8, -0.9, -1.0], (-1.0, 1.0))
    assert found.low == -1.0
    assert found.high == pytest.approx(-0.9 + 0.1 * 4.302653 / math.sqrt(3))


def test_paired_and_pooled_use_common_seeds_only():
    assert paired({1: 3.0, 2: 5.0}, {2: 1.0, 3: 9.0}) == {2: 4.0}
    assert pooled([{1: 2.0, 2: 4.0}, {2: 8.0}]) == {2: 6.0}
    assert pooled([]) == {}


@pytest.mark.parametrize(
    ("low", "high", "region", "verdict"),
    [
        (0.1, 2.0, Region(low=0), "supported"),
        (-2.0, -0.1, Region(low=0), "not supported"),
        (-0.1, 2.0, Region(low=0), "undecided at this scale"),
        (0.0, 0.0, Region(low=0), "not supported"),
        (-9.0, -5.5, Region(high=-5), "supported"),
        (-4.0, 1.0, Region(high=-5), "not supported"),
        (-1.9, 1.9, Region(low=-2, high=2), "supported"),
        (2.1, 6.0, Region(low=-2, high=2), "not supported"),
        (-6.0, -2.1, Region(low=-2, high=2), "not supported"),
        (1.0, 3.0, Region(low=-2, high=2), "undecided at this scale"),
        (-9.0, 9.0, Region(low=-2, high=2), "undecided at this scale"),
    ],
)
def test_judge_compares_the_interval_with_the_region(low, high, region, verdict):
    assert judge(Estimate((low + high) / 2, 1.0, 3, low, high), region) == verdict


def test_judge_has_no_verdict_without_interval_or_runs():
    assert judge(Estimate(50.0, None, 1), Region(low=0)) == "undecided at this scale"
    assert judge(None, Region(low=0)) == "not tested"


def test_region_says_what_it_allows():
    regions = (Region(high=0), Region(low=-0.5), Region(low=-2, high=2), Region(low=7, high=14))
    assert [str(region) for region in regions] == ["< 0", "> −0.5", "within ±2", "7 to 14"]


def test_outcomes_lists_claims_by_verdict_and_names_the_tasks_where_verdicts_differ():
    def finding(name: str, task: str, verdict: str) -> Finding:
        statistics = (Contrast(quantity="final", of="x"),)
        claim = Claim(
            name=name, short=f"c{name}", sentence="", statistics=statistics, region=Region(low=0), tasks=()
        )
        return Finding(claim, task, "", None, None, verdict)

    found = [
        finding("1", "a", "supported"),
        finding("1", "b", "supported"),
        finding("2", "a", "supported"),
        finding("2", "b", "not tested"),
        finding("3", "a", "supported"),
        finding("3", "b", "undecided at this scale"),
        finding("3", "c", "supported"),
        finding("4", "a", "not tested"),
        finding("5", "a", "undecided at this scale"),
        finding("5", OVER_TASKS, "supported"),
    ]
    assert outcomes(found) == {
        "supported": ["c1 (1)", "c2 (2) on a", "c3 (3) on a, c"],
        "undecided at this scale": ["c3 (3) on b", "c5 (5)"],
        "not tested": ["c2 (2) on b", "c4 (4)"],
    }
