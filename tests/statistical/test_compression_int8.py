"""Rounding at random must be right on average, with the variance that its docstring states.

Each test has one fixed seed, and a false-alarm rate of 1e-6 on each side under other seeds.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from widthwise.compression import Int8
from widthwise.core.seeds import SeedTree

REPEATS = 2000
RATE = 1e-6


@pytest.fixture(scope="module")
def rounded() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values [n], scales [n] and decoded values [R, n] of as many independent streams."""
    values = torch.randn(700, generator=torch.Generator().manual_seed(0))
    kind = Int8()
    seeds = SeedTree(5)
    encoded = [kind.encode(values, seeds.at(i)) for i in range(REPEATS)]
    scales = encoded[0]["scales"].double().repeat_interleave(256)[:700].numpy()
    decoded = np.stack([pieces["steps"].double().numpy() * scales for pieces in encoded])
    return values.double().numpy(), scales, decoded


def test_int8_is_unbiased(rounded):
    values, scales, decoded = rounded
    share = (values / scales) % 1
    inside = (share > 0.01) & (share < 0.99)  # elsewhere the normal approximation of R draws is poor
    deviation = scales * np.sqrt(share * (1 - share) / REPEATS)
    z = ((decoded.mean(0) - values) / deviation)[inside]
    assert inside.sum() > 600
    # The sum of squares is chi-square with as many degrees of freedom as there are values.
    assert RATE < stats.chi2.sf((z**2).sum(), len(z)) < 1 - RATE
    assert RATE < stats.norm.sf(z.sum() / np.sqrt(len(z))) < 1 - RATE  # all together, too


def test_int8_has_the_stated_variance(rounded):
    values, scales, decoded = rounded
    share = (values / scales) % 1
    wanted = scales**2 * share * (1 - share)
    # Of one value: E[d^2] = wanted, Var[d^2] = s^4 f(1-f)(1-2f)^2; the sum over values and repeats is normal.
    found = ((decoded - values) ** 2).mean(0).sum()
    spread = np.sqrt((scales**4 * share * (1 - share) * (1 - 2 * share) ** 2).sum() / REPEATS)
    assert RATE < stats.norm.sf((found - wanted.sum()) / spread) < 1 - RATE
    assert (wanted <= scales**2 / 4).all()


def test_int8_rounds_neighbours_and_streams_independently(rounded):
    values, _, decoded = rounded
    errors = decoded - values
    errors = errors[:, errors.std(0) > 0]
    errors /= errors.std(0)
    for first, second in ((errors[:, :-1], errors[:, 1:]), (errors[:-1], errors[1:])):
        z = (first * second).mean() * np.sqrt(first.size)
        assert RATE < stats.norm.sf(z) < 1 - RATE
