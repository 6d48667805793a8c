"""Divergence on the coordinates that the whole cohort trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from widthwise.core.protocols import Space
from widthwise.core.records import ClientReport, SliceSpec
from widthwise.heterogeneity.estimator import Estimator, relative_divergence


class CommonCore(Estimator):
    """All clients are compared on the same coordinates: those that every client of the cohort trained.

        H^_i = ||m.(Delta_i - Dbar)||^2 / (||m.Dbar||^2 + estimate_eps),   m = product over the cohort of m_k

    Source: Moayedikia and Troncoso Lora, arXiv 2608.07157, section 3.2, "common-core". Departs: no. "Every
    client" is every client of the round's cohort, the only ones whose updates exist.
    """

    def measure(
        self, space: Space, reports: Sequence[ClientReport], mean_delta: Mapping[str, Tensor]
    ) -> dict[int, float]:
        """Return H^ of each participant on the common coordinates."""
        core = intersection([report.spec for report in reports])
        mean = space.take(mean_delta, core)
        return {
            report.client_id: relative_divergence(
                space.take_within(report.delta, report.spec, core), mean, self.estimate_eps
            )
            for report in reports
        }


def intersection(specs: Sequence[SliceSpec]) -> SliceSpec:
    """Return the spec of the channels that all specs keep (at least one spec).

    Example:
        >>> a, b = SliceSpec(0.5, {"fc": range(2)}), SliceSpec(1.0, {"fc": range(4)})
        >>> intersection([a, b])
        SliceSpec(width=0.5, kept={'fc': range(0, 2)})
    """
    kept = {}
    for group in specs[0].kept:
        common = sorted(set.intersection(*(set(spec.kept[group]) for spec in specs)))
        contiguous = bool(common) and common[-1] - common[0] + 1 == len(common)
        kept[group] = range(common[0], common[-1] + 1) if contiguous else tuple(common)
    return SliceSpec(min(spec.width for spec in specs), kept)
