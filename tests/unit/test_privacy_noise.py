"""Clipping, denominators and noise, each alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widthwise.aggregation import CoordinateMean
from widthwise.core.seeds import SeedTree
from widthwise.privacy import clip_factor, noisy_mean
from widthwise.slicing import trace

SPACE = trace(
    torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3)), torch.zeros(2, 6)
)
SHAPES = SPACE.shapes(SPACE.full())
WIDTHS = st.sampled_from([0.25, 0.5, 0.75, 1.0])
SIZES = st.sampled_from([0.0, 1e-30, 1e-3, 0.3, 1.0, 50.0, 1e18])


def norm(tensors: dict[str, torch.Tensor]) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in tensors.values()))


def update(width: float, size: float, seed: int) -> tuple[object, dict[str, torch.Tensor]]:
    """Return a slice and an update on it of about this size."""
    spec, generator = SPACE.nested(width), torch.Generator().manual_seed(seed)
    return spec, {n: size * torch.randn(s, generator=generator) for n, s in SPACE.shapes(spec).items()}


@settings(deadline=None)
@given(size=SIZES, clip=st.floats(1e-6, 1e6), seed=st.integers(0, 100))
def test_clipped_update_is_no_longer_than_the_clip_and_short_ones_are_left_alone(size, clip, seed):
    _, delta = update(1.0, size, seed)
    factor = clip_factor(delta, clip)
    assert 0 < factor <= 1
    assert factor * norm(delta) <= clip * (1 + 1e-12)
    assert factor == 1 or factor * norm(delta) == pytest.approx(clip)
    assert (factor == 1) == (norm(delta) <= clip)


@settings(deadline=None)
@given(
    others=st.lists(st.tuples(WIDTHS, SIZES), max_size=4),
    leaving=st.tuples(WIDTHS, SIZES),
    coming=st.tuples(WIDTHS, SIZES),
    opposite=st.booleans(),
    clip=st.sampled_from([0.1, 1.0, 30.0]),
)
def test_sum_moves_by_two_clips_at_most_when_a_client_is_replaced_by_any_other(
    others, leaving, coming, opposite, clip
):
    """The sensitivity that the accountant counts with, whatever the slices of the two clients."""

    def total(client: tuple[float, float], sign: float, seed: int) -> dict[str, torch.Tensor]:
        sums = CoordinateMean(SHAPES)
        members = [(*one, i, 1.0) for i, one in enumerate(others)] + [(*client, seed, sign)]
        for width, size, own_seed, own_sign in members:
            spec, delta = update(width, own_sign * size, own_seed)
            sums.add_(SPACE, spec, delta, clip_factor(delta, clip))
        return sums.total()

    before, after = total(leaving, 1.0, 77), total(coming, -1.0, 77 if opposite else 78)
    moved = norm({name: before[name] - after[name] for name in before})
    assert moved <= 2 * clip * (1 + 1e-9)
    if opposite and leaving == coming and leaving[1] >= 50:
        assert moved == pytest.approx(2 * clip)  # the bound is met


def test_mean_divides_by_the_expected_holders_and_at_least_by_one():
    """By hand: 10 clients, a cohort of 4; of the coordinates 10, 5, 2 and 0 clients are holders."""
    total = {"w": torch.tensor([8.0, 8.0, 8.0, 0.0], dtype=torch.float64)}
    holders = {"w": torch.tensor([10.0, 5.0, 2.0, 0.0], dtype=torch.float64)}
    mean, covered = noisy_mean(total, holders, 0.4, 0.0, SeedTree(0))
    assert mean["w"].tolist() == [8 / 4, 8 / 2, 8.0, 0.0]  # 2 holders: 0.8 expected, counted as 1
    assert covered["w"].tolist() == [True, True, True, False]


def test_noise_falls_on_all_that_anybody_holds_and_on_nothing_else():
    holders = {"w": torch.tensor([1.0, 0.0, 3.0]), "v": torch.ones(2)}
    total = {name: torch.zeros(value.shape, dtype=torch.float64) for name, value in holders.items()}
    mean, _ = noisy_mean(total, holders, 0.5, 1.0, SeedTree(0))
    assert (mean["w"] != 0).tolist() == [True, False, True]
    assert bool((mean["v"] != 0).all())


def test_noise_follows_from_its_stream_and_is_left_alone_by_the_values():
    holders = {"w": torch.full((3,), 4.0)}
    zeros, ones = ({"w": torch.full((3,), v, dtype=torch.float64)} for v in (0.0, 1.0))
    first, again, other = (noisy_mean(zeros, holders, 0.5, 1.0, SeedTree(s))[0]["w"] for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not bool((first == other).any())
    moved, _ = noisy_mean(ones, holders, 0.5, 1.0, SeedTree(1))
    torch.testing.assert_close(moved["w"] - first, torch.full((3,), 0.5, dtype=torch.float64))
