"""The weakest link that a permutation test within tiers would still have found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from math import log
from typing import Any

import numpy as np
from scipy.special import betainc, gammaln

from widthwise.audit.correlation import Array
from widthwise.core.seeds import SeedTree

#: Level of every test of the audit, and the power that is asked of it.
ALPHA, POWER = 0.05, 0.8
_DATASETS = 5_000
_STEP = 5e-4

Design = tuple[tuple[int, ...], ...]
"""For each run, how many clients each stratum has."""


@dataclass(frozen=True)
class Power:
    """What the tests of one table could have seen.

    Attributes:
        alpha: Level of the tests.
        power: Chance of finding a link of the sizes below.
        smallest_detectable_r: Smallest true correlation inside capacity tiers that is found with that
            chance, or None where not even a perfect one could be.
        smallest_detectable_r_all_clients: The same for the correlations that do not hold capacity fixed.
    """

    smallest_detectable_r: float | None
    smallest_detectable_r_all_clients: float | None
    alpha: float = ALPHA
    power: float = POWER

    def to_json(self) -> dict[str, Any]:
        """Return the power as a JSON-able dictionary."""
        return asdict(self)


def power_of(tier_sizes: Sequence[Sequence[int]]) -> Power:
    """Return what can be seen with these clients: for each run, the number of clients of each capacity."""
    inside = tuple(sorted(tuple(sorted(sizes)) for sizes in tier_sizes))
    overall = tuple(sorted((sum(sizes),) for sizes in tier_sizes))
    return Power(smallest_detectable(inside), smallest_detectable(overall))


@cache
def smallest_detectable(design: Design) -> float | None:
    """Return the smallest true correlation inside strata that the permutation test finds with power 0.8.

    Model: inside every stratum of every run, x and y are jointly normal with the same correlation rho and the
    same spread; strata may differ in level. The test is ``permutation_test`` at 5 %, two-sided, on the mean
    over runs of r_k = sum_t x_t.y_t / (|x_k| |y_k|), all centred within strata t.

    Method: simulation, with a fixed seed, of 5,000 data sets (their sums of squares and products inside
    strata are drawn directly: Bartlett's decomposition of a Wishart matrix). The p-value of each comes from
    the beta law that has the variance of the permutation distribution,
    r^2 ~ Beta(1/2, (v - 1)/2) with 1/v = sum_k sum_t |x_t|^2 |y_t|^2 / ((n_t - 1) |x_k|^2 |y_k|^2) / K^2,
    which for one stratum is Student's t test.
    Source: Pitman (1937), "Significance tests which may be applied to samples from any populations II".

    Args:
        design: For each run, the sizes of its strata.

    Returns:
        rho to about 0.01 where there are more than 10,000 arrangements and to about 0.03 below, where p
        moves in steps; None where so few arrangements exist that p can never fall to 0.05.
    """
    strata = [np.array([n for n in sizes if n > 1]) for sizes in design]
    strata = [sizes for sizes in strata if len(sizes)]
    log_arrangements = sum(float(gammaln(sizes + 1).sum()) for sizes in strata)
    # Where all strata are pairs, reversing all of them turns T into -T, and both count as extreme.
    extremes = 2 if all(n == 2 for sizes in strata for n in sizes) else 1
    if log_arrangements < log(extremes / ALPHA):
        return None
    draws = [_Draws(sizes, SeedTree(0).at("audit", "power", k)) for k, sizes in enumerate(strata)]
    low, high = 0.0, 1.0
    while high - low > _STEP:
        middle = (low + high) / 2
        low, high = (low, middle) if _share_found(draws, middle) >= POWER else (middle, high)
    return round(high, 3)


class _Draws:
    """Sums of squares and products of y and of noise e, independent of y, inside the strata of one run.

    Shapes: D data sets, T strata.
    """

    def __init__(self, sizes: Array, tree: SeedTree) -> None:
        rng = tree.numpy()
        shape = (_DATASETS, len(sizes))
        root = np.sqrt(rng.chisquare(sizes - 1, shape))
        along = rng.normal(size=shape)
        # The part of e across y has one degree of freedom less: none in a pair.
        across = np.where(sizes > 2, rng.chisquare(np.maximum(sizes - 2, 1), shape), 0.0)
        self.freedom = sizes - 1
        self.yy, self.ye, self.ee = root**2, root * along, along**2 + across

    def correlation(self, rho: float) -> tuple[Array, Array]:
        """Return r [D] of y and x = rho y + sqrt(1 - rho^2) e, and its variance under permutation [D]."""
        s = np.sqrt(1 - rho * rho)
        xy = rho * self.yy + s * self.ye
        xx = rho * rho * self.yy + 2 * rho * s * self.ye + s * s * self.ee
        scale = xx.sum(axis=1) * self.yy.sum(axis=1)
        return xy.sum(axis=1) / np.sqrt(scale), (xx * self.yy / self.freedom).sum(axis=1) / scale


def _share_found(draws: Sequence[_Draws], rho: float) -> float:
    found = [run.correlation(rho) for run in draws]
    r = sum(r for r, _ in found) / len(draws)
    variance = sum(variance for _, variance in found) / len(draws) ** 2
    p = betainc((1 / variance - 1) / 2, 0.5, np.clip(1 - r * r, 0, 1))
    return float(np.mean(p <= ALPHA))
