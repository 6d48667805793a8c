"""Capacities: exact counts, random assignment, refused configurations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from widthwise.core.errors import ConfigError
from widthwise.core.seeds import SeedTree
from widthwise.tasks import CapacityConfig
from widthwise.tasks.capacity import apportion


def test_draw_has_mean_of_paper_for_every_seed() -> None:
    # Shares .35/.35/.15/.15 of 20 clients are 7, 7, 3, 3: (7*.25 + 7*.5 + 3*.75 + 3*1) / 20 = .525.
    for seed in (42, 43, 44):
        capacities = CapacityConfig().draw(20, SeedTree(seed))
        assert np.unique(capacities, return_counts=True)[1].tolist() == [7, 7, 3, 3]
        assert capacities.mean() == pytest.approx(0.525)


def test_draw_assigns_other_clients_for_another_seed() -> None:
    first, again, other = (CapacityConfig().draw(20, SeedTree(seed)).tolist() for seed in (42, 42, 43))
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("shares", "total", "expected"),
    [
        # Exact 1.75, 1.75, .75, .75 of 5: floors 1, 1, 0, 0 leave 3, for the first of equal remainders.
        ((0.35, 0.35, 0.15, 0.15), 5, [2, 2, 1, 0]),
        # Exact 3.5, 2.1, 1.4: floors 3, 2, 1 leave 1, for the remainder .5.
        ((0.5, 0.3, 0.2), 7, [4, 2, 1]),
        ((0.25, 0.75), 4, [1, 3]),
    ],
)
def test_apportion_gives_seats_to_largest_remainders(
    shares: tuple[float, ...], total: int, expected: list[int]
) -> None:
    assert apportion(shares, total).tolist() == expected


@settings(deadline=None, max_examples=50)
@given(
    weights=st.lists(st.integers(1, 1000), min_size=1, max_size=8),
    total=st.integers(1, 10_000),
)
def test_apportion_stays_within_one_of_exact_share(weights: list[int], total: int) -> None:
    shares = tuple(weight / sum(weights) for weight in weights)
    counts = apportion(shares, total)
    assert counts.sum() == total
    assert np.abs(counts - np.array(shares) * total).max() < 1 + 1e-6


def test_draw_returns_list_in_client_order() -> None:
    config = CapacityConfig.model_validate({"list": [0.5, 1.0, 0.25]})
    assert config.draw(3, SeedTree(0)).tolist() == [0.5, 1.0, 0.25]
    assert config.levels() == (0.25, 0.5, 1.0)


def test_draw_refuses_list_of_other_length() -> None:
    config = CapacityConfig.model_validate({"list": [0.5, 1.0]})
    with pytest.raises(ConfigError, match=r"^capacity.list has 2 entries, but clients is 3\. Give one width"):
        config.draw(3, SeedTree(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tiers": [0.5, 1.5], "shares": [0.5, 0.5]}, "less than or equal to 1"),
        ({"tiers": [0.0, 1.0], "shares": [0.5, 0.5]}, "greater than 0"),
        ({"tiers": [0.5], "shares": [0.5, 0.5]}, "shares has 2 entries, but tiers has 1. Give one share"),
        ({"tiers": [0.5, 1], "shares": [0.5, 0.4]}, r"sum 0.9, but shares must sum to 1. Correct them."),
        ({"tiers": [0.5, 0.5], "shares": [0.5, 0.5]}, "a width occurs twice. Add its shares up"),
        ({"tiers": [0.5], "shares": [1], "list": [1.0]}, "list is set beside tiers or shares"),
        ({"list": [1.5]}, "less than or equal to 1"),
        ({"list": []}, "at least 1 item"),
        ({"tier": [0.5]}, "Extra inputs are not permitted"),
    ],
)
def test_capacity_config_refuses(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CapacityConfig.model_validate(options)
