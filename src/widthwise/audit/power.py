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
_STEP = 5e-4
# Data sets to simulate, and how many numbers they may hold in all. The error of the answer is about
# 1.4 / sqrt(data sets x degrees of freedom): with more strata, fewer data sets say it as well.
_DATASETS, _NUMBERS = 5_000, 2_000_000

Design = tuple[tuple[int, ...], ...]
"""For each run, how many clients each stratum has: who may be exchanged with whom."""


@dataclass(frozen=True)
class Power:
    """What the tests of statistic and label divergence could have seen, in the runs where these are defined.

    Attributes:
        alpha: Level of the tests.
        power: Chance of finding a link of the sizes below.
        smallest_detectable_r: Smallest true correlation inside capacity tiers that is found with that
            chance, or None where not even a perfect one could be, or where none is defined.
        smallest_detectable_r_all_clients: The same for the correlation that does not hold capacity fixed.
    """

    smallest_detectable_r: float | None
    smallest_detectable_r_all_clients: float | None
    alpha: float = ALPHA
    power: float = POWER

    def to_json(self) -> dict[str, Any]:
        """Return the power as a JSON-able dictionary."""
        return asdict(self)


def smallest_detectable(design: Design) -> float | None:
    """Return the smallest true correlation inside strata that the permutation test finds with power 0.8.

    Model: inside every stratum of every run, x and y are jointly normal with the same correlation rho and the
    same spread; strata may differ in level. The test is ``permutation_test`` at 5 %, two-sided, on the mean
    over runs of r_k = sum_t x_t.y_t / (|x_k| |y_k|), all centred within strata t.

    Method: simulation, with a fixed seed, of 5,000 data sets, or fewer where there are more than 400 strata
    (their sums of squares and products inside strata are drawn directly: Bartlett's decomposition of a
    Wishart matrix). The p-value of each comes from the beta law that has the variance of the permutation
    distribution,
    r^2 ~ Beta(1/2, (v - 1)/2) with 1/v = sum_k sum_t |x_t|^2 |y_t|^2 / ((n_t - 1) |x_k|^2 |y_k|^2) / K^2,
    which for one stratum is Student's t test.
    Source: Pitman (1937), "Significance tests which may be applied to samples from any populations II".

    Args:
        design: For each run, the sizes of its strata; the order of runs and of strata means nothing.

    Returns:
        rho to about 0.01 where there are more than 10,000 arrangements and to about 0.03 below, where p
        moves in steps; None where so few arrangements exist that p can never fall to 0.05.

    Example:
        >>> smallest_detectable(((2, 2, 2, 2),)) is None
        True
    """
    return _smallest_detectable(tuple(sorted(tuple(sorted(n for n in sizes if n > 1)) for sizes in design)))


@cache
def _smallest_detectable(design: Design) -> float | None:
    strata = [np.array(sizes) for sizes in design if sizes]
    log_arrangements = sum(float(gammaln(sizes + 1).sum()) for sizes in strata)
    # Where all strata are pairs, reversing all of them turns T into -T, and both count as extreme.
    extremes = 2 if all((sizes == 2).all() for sizes in strata) else 1
    if log_arrangements < log(extremes / ALPHA):
        return None
    count = max(1, min(_DATASETS, _NUMBERS // sum(map(len, strata))))
    draws = [_Draws(sizes, count, SeedTree(0).at("audit", "power", k)) for k, sizes in enumerate(strata)]
    low, high = 0.0, 1.0
    while high - low > _STEP:
        middle = (low + high) / 2
        low, high = (low, middle) if _share_found(draws, middle) >= POWER else (middle, high)
    return round(high, 3)


class _Draws:
    """Data sets of y and of noise e, independent of y, in the strata of one run; kept as sums over strata.

    Shapes: D data sets, T strata; the sums are [D], of the products yy, ye and ee of each stratum alone and,
    for the variance under permutation, times yy / (n_t - 1).
    """

    def __init__(self, sizes: Array, count: int, tree: SeedTree) -> None:
        rng = tree.numpy()
        shape = (count, len(sizes))
        root = np.sqrt(rng.chisquare(sizes - 1, shape))
        along = rng.normal(size=shape)
        # The part of e across y has one degree of freedom less: none in a pair.
        across = np.where(sizes > 2, rng.chisquare(np.maximum(sizes - 2, 1), shape), 0.0)
        products = root**2, root * along, along**2 + across
        self.yy, self.ye, self.ee = (product.sum(axis=1) for product in products)
        share = products[0] / (sizes - 1)
        self.yy_share, self.ye_share, self.ee_share = ((product * share).sum(axis=1) for product in products)

    def correlation(self, rho: float) -> tuple[Array, Array]:
        """Return r [D] of y and x = rho y + sqrt(1 - rho^2) e, and its variance under permutation [D]."""
        s = np.sqrt(1 - rho * rho)
        weights = rho * rho, 2 * rho * s, s * s  # of yy, ye and ee in xx
        xx = np.tensordot(weights, (self.yy, self.ye, self.ee), 1)
        xx_share = np.tensordot(weights, (self.yy_share, self.ye_share, self.ee_share), 1)
        scale = xx * self.yy
        return (rho * self.yy + s * self.ye) / np.sqrt(scale), xx_share / scale


def _share_found(draws: Sequence[_Draws], rho: float) -> float:
    found = [run.correlation(rho) for run in draws]
    r = sum(r for r, _ in found) / len(draws)
    variance = sum(variance for _, variance in found) / len(draws) ** 2
    p = betainc((1 / variance - 1) / 2, 0.5, np.clip(1 - r * r, 0, 1))
    return float(np.mean(p <= ALPHA))
