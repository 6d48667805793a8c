"""Heterogeneity estimated from updates: the schedule and the smoothing that all variants share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from widthwise.core.params import squared_norm
from widthwise.core.protocols import Space
from widthwise.core.records import ClientReport, SliceSpec
from widthwise.core.traits import Trait

Estimates = NDArray[np.float64]


class Estimator(BaseModel):
    """Base of all estimators of how far a client's update lies from the mean update.

        H^_i  = ||Delta_i - Dbar||^2 / (||Dbar||^2 + estimate_eps)     on a set of coordinates (the variant's)
        H_i  <- beta * H_i + (1 - beta) * H^_i                         participants of the round only

    Source: Moayedikia and Troncoso Lora, arXiv 2608.07157, eq. 4, eq. 5 and algorithm 1. Departs: no;
    estimate_eps, which the paper leaves open, is the square of an update of norm 1e-6, which is what
    float32 rounding leaves of an update to weights of size 1.

    Attributes:
        beta: Weight of the past.
        adapt_every: Rounds between adaptations (T_adapt).
        warmup: Rounds before the first adaptation.
        normalise_every: Rounds between rescalings to mean 1 (T_norm).
        estimate_eps: Keeps the quotient finite where the mean update is 0.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    beta: float = Field(0.9, ge=0, lt=1)
    adapt_every: int = Field(5, ge=1)
    warmup: int = Field(10, ge=0)
    normalise_every: int = Field(20, ge=1)
    estimate_eps: float = Field(1e-12, gt=0, allow_inf_nan=False)

    @property
    def needs(self) -> frozenset[Trait]:
        """What slices must be for the variant to be defined."""
        return frozenset()

    def init(self, num_clients: int) -> Estimates:
        """Return [N] ones: all clients alike."""
        return np.ones(num_clients)

    def due(self, round_index: int) -> bool:
        """Return whether the end of this round adapts: t mod adapt_every = 0 once ``warmup`` rounds are over.

        Rounds count from 0, so rounds 0 to warmup - 1 are the warm-up.

        Example:
            >>> from widthwise.heterogeneity import ESTIMATORS
            >>> [t for t in range(21) if ESTIMATORS["restricted"].value().due(t)]
            [10, 15, 20]
        """
        return round_index >= self.warmup and round_index % self.adapt_every == 0

    @abstractmethod
    def measure(
        self,
        space: Space,
        reports: Iterable[ClientReport],
        mean_delta: Mapping[str, Tensor],
        common: SliceSpec,
    ) -> dict[int, float]:
        """Return H^ of each participant.

        Args:
            space: The width space.
            reports: The cohort's reports, to be gone through once: they are read from disk.
            mean_delta: Dbar in global shapes, 0 where nobody trained.
            common: What all of these reports hold (``intersection`` of their specs).
        """

    def update(self, values: Estimates, measured: Mapping[int, float], round_index: int) -> Estimates:
        """Return [N] the smoothed estimates after an adaptation at the end of ``round_index``.

        Where a multiple of ``normalise_every`` (not 0) has come up since the previous adaptation slot, all
        estimates are rescaled to mean 1, which keeps their order. With the paper's 5 and 20 that is at
        rounds 20, 40, ...; the rule also holds where the two do not divide.
        """
        smoothed = values.copy()
        for client, measure in measured.items():
            smoothed[client] = self.beta * smoothed[client] + (1 - self.beta) * measure
        before = max(round_index - self.adapt_every, 0)
        mean = smoothed.mean()
        if round_index // self.normalise_every > before // self.normalise_every and mean > 0:
            smoothed /= mean
        return smoothed


def relative_divergence(delta: Mapping[str, Tensor], mean: Mapping[str, Tensor], eps: float) -> float:
    """Return ||delta - mean||^2 / (||mean||^2 + eps), squares summed in float64."""
    difference = {name: value.double() - mean[name].double() for name, value in delta.items()}
    return squared_norm(difference) / (squared_norm(mean) + eps)
