"""Divergence on the coordinates that the whole cohort trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from widthwise.core.protocols import Space
from widthwise.core.records import ClientReport, Mask, SliceSpec, ascending
from widthwise.core.traits import Trait
from widthwise.heterogeneity.estimator import Estimator, relative_divergence


class CommonCore(Estimator):
    """All clients are compared on the same coordinates: those that every client of the cohort trained.

        H^_i = ||m.(Delta_i - Dbar)||^2 / (||m.Dbar||^2 + estimate_eps),   m = product over the cohort of m_k

    Source: Moayedikia and Troncoso Lora, arXiv 2608.07157, section 3.2, "common-core". Departs: no. "Every
    client" is every client of the round's cohort, the only ones whose updates exist.
    """

    @property
    def needs(self) -> frozenset[Trait]:
        """Slices that share coordinates in every round."""
        return frozenset({Trait.COMMON})

    def measure(
        self,
        space: Space,
        reports: Iterable[ClientReport],
        mean_delta: Mapping[str, Tensor],
        common: SliceSpec,
    ) -> dict[int, float]:
        """Return H^ of each participant on the common coordinates."""
        mean = common.masked(space.take(mean_delta, common))
        return {
            report.client_id: relative_divergence(
                common.masked(space.take_within(report.delta, report.spec, common)), mean, self.estimate_eps
            )
            for report in reports
        }


def intersection(*specs: SliceSpec) -> SliceSpec:
    """Return the spec of the channels and, under masks, coordinates that all specs keep (at least one).

    Associative, so that the specs of a cohort need not be held together.

    Example:
        >>> a, b = SliceSpec(0.5, {"fc": range(2)}), SliceSpec(1.0, {"fc": range(4)})
        >>> intersection(a, b).kept
        {'fc': range(0, 2)}
    """
    kept = {
        group: ascending(set.intersection(*(set(spec.kept[group]) for spec in specs)))
        for group in specs[0].kept
    }
    return SliceSpec(min(spec.width for spec in specs), kept, _common([spec.mask for spec in specs]))


def _common(masks: Sequence[Mask | None]) -> Mask | None:
    some = [mask for mask in masks if mask is not None]
    if not some:
        return None
    return Mask(
        {name: torch.stack([mask.kept[name] for mask in some]).all(dim=0) for name in some[0].kept},
        {name: max(mask.thresholds[name] for mask in some) for name in some[0].kept},
    )
