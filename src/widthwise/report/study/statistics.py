"""Means and intervals over seeds, of one sample or of paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from widthwise.audit.resampling import t_reach


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: The mean.
        sd: Standard deviation over seeds, None for one seed.
        n: Number of seeds.
        low: Lower end of the 95 % interval of the mean, None for one seed.
        high: Upper end.
    """

    mean: float
    sd: float | None
    n: int
    low: float | None = None
    high: float | None = None


def estimate(values: Sequence[float], limits: tuple[float, float] = (-math.inf, math.inf)) -> Estimate | None:
    """Return the mean with its 95 % t interval over seeds, or None where there are no values.

    The interval ends at the limits: the least and the largest value that there can be.

    Formula: mean ± ``t_reach``. With n = 3 there are 2 degrees of freedom and t = 4.30: the interval is 2.48
    sd to each side. It takes the seeds as independent draws and what is averaged as roughly normal, which
    three seeds cannot show.

    Example:
        >>> found = estimate([1.0, 2.0, 3.0])
        >>> found.mean, found.n, round(found.low, 3), round(found.high, 3)
        (2.0, 3, -0.484, 4.484)
        >>> estimate([-0.9, -0.1], (-1.0, 1.0)).low
        -1.0
    """
    if not len(values):
        return None
    sample = np.asarray(values, dtype=np.float64)
    mean, n = float(sample.mean()), len(sample)
    if n < 2:
        return Estimate(mean, None, n)
    sd = float(sample.std(ddof=1))
    half = t_reach(values)
    return Estimate(mean, sd, n, max(limits[0], mean - half), min(limits[1], mean + half))


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    """Return first minus second for every seed that both have.

    Runs of one seed share partition, capacities and cohorts: what a seed makes easy is easy for both.

    Example:
        >>> paired({42: 0.5, 43: 0.25}, {43: 0.125, 44: 0.5})
        {43: 0.125}
    """
    return {seed: first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())}


def pooled(by_task: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return for each seed the mean over tasks, for the seeds that every task has.

    Formula: d_s = sum_t d_ts / T. The tasks are taken as they are (fixed), the seeds as drawn: runs of one
    seed on different tasks share their capacities and cohorts, so they are not independent, and an interval
    over all pairs of task and seed would be too narrow. An interval over the d_s is not.

    Example:
        >>> pooled([{42: 1.0, 43: 3.0}, {42: 3.0, 43: 5.0, 44: 9.0}])
        {42: 2.0, 43: 4.0}
    """
    if not by_task:
        return {}
    seeds = set.intersection(*(set(values) for values in by_task))
    return {seed: float(np.mean([values[seed] for values in by_task])) for seed in sorted(seeds)}
