"""The mechanism: updates of bounded length, noise on their sum, and denominators that tell nothing.

Shapes: ``*p`` the global shape of a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from widthwise.core.params import Params, squared_norm
from widthwise.core.seeds import SeedTree


def clip_factor(delta: Mapping[str, Tensor], clip: float) -> float:
    """Return what an update is multiplied with so that its norm is at most C: min(1, C / ||delta||).

    Example:
        >>> clip_factor({"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}, 1.0)
        0.2
    """
    norm = math.sqrt(squared_norm(delta))
    return clip / norm if norm > clip else 1.0


def noisy_mean(
    total: Mapping[str, Tensor], holders: Mapping[str, Tensor], share: float, noise: float, seeds: SeedTree
) -> tuple[Params, Params]:
    """Return the mean that is released, and which coordinates it covers.

    Formula, for coordinate j that N_j of the N clients hold in this round, with a cohort of m::

        mean_j = (sum_{i in S} clip(delta_i)_j + e_j) / max(1, N_j m / N)      where N_j > 0, else 0
        e_j ~ N(0, (z C)^2)

    Noise is added to the sum, alike on every coordinate that any client holds, whether or not the cohort
    holds it: where few do, the denominator is small, and the mean has more noise. Denominator and covered
    coordinates are known without the cohort, so that all that is released is the noisy sum. (The number of
    the cohort's clients that hold j would tell who takes part, and the accountant assumes that nobody knows.)

    Source: McMahan et al. 2018, arXiv 1710.06963, section 2.2, the estimator with a fixed denominator.
    Departs: by coordinate; at least 1, so that no step is longer than the sum of the updates where fewer than
    one holder is to be expected.

    Args:
        total: sum_{i in S} clip(delta_i), float64, of shape ``*p`` each.
        holders: N_j, likewise.
        share: m / N.
        noise: z C.
        seeds: Root of the noise, anew for each round.

    Returns:
        The mean in float64 (0 where N_j = 0), and where N_j > 0 (bool).
    """
    generator = seeds.torch()
    covered = {name: count > 0 for name, count in holders.items()}
    mean = {}
    for name, value in total.items():
        noisy = value + noise * torch.randn(value.shape, generator=generator, dtype=torch.float64)
        mean[name] = torch.where(covered[name], noisy / (share * holders[name]).clamp(min=1.0), 0.0)
    return mean, covered
