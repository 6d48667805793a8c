"""Epsilon against closed forms, and against distributions that are integrated numerically."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest
from scipy import optimize, stats

from widthwise.core.errors import ConfigError
from widthwise.privacy import accountant, epsilon

pytest.importorskip("dp_accounting", reason="pip install '.[privacy]'")
DELTA = 1e-5


def exact_gaussian(noise: float, delta: float) -> float:
    """Return the epsilon of one Gaussian mechanism whose noise is ``noise`` times its sensitivity.

    Balle and Wang 2018, arXiv 1805.06530, theorem 8: delta = Phi(1/2s - eps s) - e^eps Phi(-1/2s - eps s).
    """

    def excess(eps: float) -> float:
        low, high = stats.norm.cdf(0.5 / noise - eps * noise), stats.norm.logcdf(-0.5 / noise - eps * noise)
        return low - math.exp(eps + high) - delta

    return float(optimize.brentq(excess, 0.0, 2000.0))


def test_published_value_of_the_exact_gaussian():
    # Classical calibration, sigma = sqrt(2 ln(1.25 / delta)) / eps, is known to be too careful at eps = 1.
    assert exact_gaussian(math.sqrt(2 * math.log(1.25 / DELTA)), DELTA) < 1


@pytest.mark.parametrize("z", [1.0, 2.0, 8.0])
@pytest.mark.parametrize("rounds", [1, 10, 200])
def test_epsilon_without_a_sample_is_just_above_the_exact_one(z, rounds):
    # T Gaussian mechanisms of noise s are one of noise s / sqrt(T). The sensitivity is 2 C: s = z / 2.
    exact = exact_gaussian(z / 2 / math.sqrt(rounds), DELTA)
    assert exact <= epsilon(z, DELTA, 50, 50, rounds) <= 1.2 * exact


@pytest.mark.parametrize(("z", "rounds"), [(1.0, 1), (4.0, 100)])
def test_epsilon_without_a_sample_is_the_closed_form_of_renyi(z, rounds):
    alpha = np.linspace(1.02, 512, 200_000)
    divergence = rounds * alpha / (2 * (z / 2) ** 2)
    closed = divergence + np.log1p(-1 / alpha) - np.log(DELTA * alpha) / (alpha - 1)
    found = epsilon(z, DELTA, 50, 50, rounds)
    assert closed.min() <= found * (1 + 1e-9)
    assert found <= 1.01 * closed.min()  # it looks at some orders only


def hockey_stick(eps: float, first: np.ndarray, second: np.ndarray, step: float) -> float:
    return float(np.maximum(first - math.exp(eps) * second, 0).sum() * step)


def sampled(values: tuple[float, ...], cohort: int, z: float, grid: np.ndarray) -> np.ndarray:
    """Return the density of the noisy sum over a secret cohort, clip 1."""
    sums = [sum(chosen) for chosen in itertools.combinations(values, cohort)]
    return np.mean([stats.norm.pdf(grid, loc=total, scale=z) for total in sums], axis=0)


@pytest.mark.parametrize("cohort", [1, 2, 3, 4])
@pytest.mark.parametrize("z", [1.5, 4.0])
def test_epsilon_bounds_every_federation_of_four_clients_on_one_coordinate(cohort, z):
    """All federations of four clients whose updates are -C, 0 or C, one of which is replaced by any other."""
    grid, step = np.linspace(-12 * z, 12 * z, 20_001, retstep=True)
    found = epsilon(z, DELTA, 4, cohort, 1)
    worst = 0.0
    for others in itertools.combinations_with_replacement((-1.0, 0.0, 1.0), 3):
        densities = [sampled((one, *others), cohort, z, grid) for one in (-1.0, 0.0, 1.0)]
        for first, second in itertools.permutations(densities, 2):
            worst = max(worst, hockey_stick(found, first, second, step))
    assert worst <= DELTA
    if cohort == 4:  # no looser than it must be: with half the sensitivity it would be no bound
        too_small = epsilon(2 * z, DELTA, 4, 4, 1)
        first, second = (sampled((one, 0.0, 0.0, 0.0), 4, z, grid) for one in (-1.0, 1.0))
        assert hockey_stick(too_small, first, second, step) > 10 * DELTA


def test_epsilon_of_a_secret_sample_is_never_above_that_of_a_known_one():
    known = epsilon(3.0, DELTA, 100, 100, 30)
    found = [epsilon(3.0, DELTA, 100, cohort, 30) for cohort in (1, 5, 20, 50, 99)]
    assert found == sorted(found)
    assert found[0] < 0.1 * known
    assert found[-1] <= known


def test_epsilon_grows_with_rounds_and_falls_with_noise():
    rounds = [epsilon(4.0, DELTA, 400, 40, t) for t in (0, 1, 10, 100)]
    assert rounds[0] == 0
    assert rounds == sorted(rounds)
    noise = [epsilon(z, DELTA, 400, 40, 10) for z in (8.0, 4.0, 2.0, 1.0)]
    assert noise == sorted(noise)


def test_missing_accountant_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    accountant._of_a_round.cache_clear()
    with pytest.raises(
        ConfigError, match=r"'dp-accounting' is not installed\. Run: pip install 'widthwise\[pr"
    ):
        epsilon(1.0, DELTA, 4, 2, 1)
