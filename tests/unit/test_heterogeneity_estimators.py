from __future__ import annotations

import numpy as np
import pytest
import torch

from widthwise.core.records import ClientReport, SliceSpec
from widthwise.heterogeneity import ESTIMATORS
from widthwise.heterogeneity.common_core import intersection

RESTRICTED, COMMON_CORE = ESTIMATORS["restricted"].value, ESTIMATORS["common-core"].value


def report(client: int, spec: SliceSpec, values: list[float]) -> ClientReport:
    return ClientReport(client, 0, spec, {"w": torch.tensor(values)}, 1, 1, {"loss": 0.0})


@pytest.fixture
def cohort(make_toy):
    """Two clients on 4 and 2 of 4 coordinates; the mean update is plain on what both hold."""
    space = make_toy("bowl").space
    reports = [report(0, space.nested(1.0), [1, 2, 3, 4]), report(1, space.nested(0.5), [3, 0])]
    mean = {"w": torch.tensor([2.0, 1.0, 3.0, 4.0])}
    return space, reports, mean, intersection(*(one.spec for one in reports))


def test_restricted_compares_each_client_on_its_own_coordinates(cohort) -> None:
    # Client 0: (1 + 1 + 0 + 0) / (4 + 1 + 9 + 16) = 2/30. Client 1: (1 + 1) / (4 + 1) = 2/5.
    assert RESTRICTED().measure(*cohort) == pytest.approx({0: 2 / 30, 1: 2 / 5}, rel=1e-9)


def test_common_core_compares_all_clients_on_the_coordinates_of_all(cohort) -> None:
    # Both on the first two coordinates: client 0 (1 + 1) / (4 + 1), client 1 (1 + 1) / (4 + 1).
    assert COMMON_CORE().measure(*cohort) == pytest.approx({0: 2 / 5, 1: 2 / 5}, rel=1e-9)


def test_estimate_is_bounded_by_its_eps_when_updates_cancel(make_toy) -> None:
    space = make_toy("bowl").space
    reports = [report(i, space.nested(0.25), [sign]) for i, sign in enumerate([0.5, -0.5])]
    zero = {"w": torch.zeros(4)}
    assert RESTRICTED(estimate_eps=0.25).measure(space, reports, zero, reports[0].spec) == {0: 1.0, 1: 1.0}


def test_common_core_of_specs_that_are_not_nested() -> None:
    a, b = SliceSpec(0.5, {"g": (0, 2, 3), "h": (5, 6, 7)}), SliceSpec(0.6, {"g": (0, 3), "h": range(6, 9)})
    assert intersection(a, b) == SliceSpec(0.5, {"g": (0, 3), "h": range(6, 8)})


def test_adaptation_is_due_at_multiples_after_the_warm_up() -> None:
    assert [t for t in range(26) if RESTRICTED().due(t)] == [10, 15, 20, 25]
    assert [t for t in range(10) if RESTRICTED(warmup=4, adapt_every=3).due(t)] == [6, 9]
    assert RESTRICTED(warmup=0).due(0)


def test_update_smooths_participants_only() -> None:
    values = RESTRICTED().update(np.array([1.0, 2.0, 3.0]), {1: 12.0}, 10)
    assert values == pytest.approx([1, 0.9 * 2 + 0.1 * 12, 3], rel=1e-15)


def test_update_rescales_to_mean_one_where_a_multiple_has_come_up() -> None:
    def rescaled(**options: int) -> list[int]:
        estimator = RESTRICTED(**options)
        due = [t for t in range(60) if estimator.due(t)]
        return [t for t in due if estimator.update(np.array([1.0, 5.0]), {}, t).mean() == 1.0]

    assert rescaled() == [20, 40]
    assert rescaled(adapt_every=7, warmup=0) == [21, 42]  # the first adaptations after 20 and after 40
    assert rescaled(adapt_every=30, warmup=0) == [30]
    values = RESTRICTED().update(np.array([1.0, 5.0]), {}, 20)
    assert values == pytest.approx([1 / 3, 5 / 3], rel=1e-15)  # the order and the ratio stay


@pytest.mark.parametrize(
    ("option", "value"),
    [("beta", 1.0), ("adapt_every", 0), ("warmup", -1), ("normalise_every", 0), ("estimate_eps", 0)],
)
def test_estimator_refuses_options_out_of_range(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=option):
        RESTRICTED(**{option: value})
