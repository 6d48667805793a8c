"""The noise has the variance that epsilon is computed from, on every coordinate alike.

Each test has one fixed seed, and a false-alarm rate of 1e-6 on each side under other seeds.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from widthwise.core.seeds import SeedTree
from widthwise.privacy import noisy_mean

RATE = 1e-6
NOISE, SHARE, ROUNDS = 3.0, 0.25, 60
HOLDERS = torch.tensor([4.0, 8.0, 40.0, 400.0], dtype=torch.float64).repeat_interleave(250)


@pytest.fixture(scope="module")
def means() -> np.ndarray:
    """Return [rounds, coordinates] the noise of the mean."""
    total = {"w": torch.zeros(len(HOLDERS), dtype=torch.float64)}
    seeds = SeedTree(9).at("noise")
    return np.stack(
        [noisy_mean(total, {"w": HOLDERS}, SHARE, NOISE, seeds.at(t))[0]["w"] for t in range(ROUNDS)]
    )


@pytest.mark.parametrize("few", [4, 8, 40, 400])
def test_noise_of_the_sum_is_z_times_clip_whoever_holds_the_coordinate(means, few):
    held = (few == HOLDERS).numpy()
    scaled = means[:, held] * max(1.0, few * SHARE) / NOISE
    assert RATE < stats.chi2.sf((scaled**2).sum(), scaled.size) < 1 - RATE
    assert RATE < stats.norm.sf(scaled.sum() / np.sqrt(scaled.size)) < 1 - RATE


def test_noise_of_the_mean_is_larger_where_few_hold_the_coordinate(means):
    spread = [means[:, (few == HOLDERS).numpy()].std() for few in (4, 8, 40, 400)]
    assert spread == pytest.approx([NOISE, NOISE / 2, NOISE / 10, NOISE / 100], rel=0.05)


def test_noise_is_normal_and_independent_between_coordinates_and_rounds(means):
    scaled = means * np.maximum(1.0, HOLDERS.numpy() * SHARE) / NOISE
    assert stats.kstest(scaled.ravel(), "norm").pvalue > RATE
    for first, second in ((scaled[:, :-1], scaled[:, 1:]), (scaled[:-1], scaled[1:])):
        z = (first * second).sum() / np.sqrt(first.size)
        assert RATE < stats.norm.sf(z) < 1 - RATE
