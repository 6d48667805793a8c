"""Divergence on the coordinates that the client trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from widthwise.core.protocols import Space
from widthwise.core.records import ClientReport, SliceSpec
from widthwise.heterogeneity.estimator import Estimator, relative_divergence


class Restricted(Estimator):
    """Each client is compared on its own coordinates.

        H^_i = ||m_i.(Delta_i - Dbar)||^2 / (||m_i.Dbar||^2 + estimate_eps)

    Source: Moayedikia and Troncoso Lora, arXiv 2608.07157, eq. 4, "coordinate-restricted". Departs: no.
    Clients of different width are compared on different coordinates, so the values carry capacity with
    them: audit them before reading them as data heterogeneity.
    """

    def measure(
        self,
        space: Space,
        reports: Iterable[ClientReport],
        mean_delta: Mapping[str, Tensor],
        common: SliceSpec,
    ) -> dict[int, float]:
        """Return H^ of each participant on its trained coordinates."""
        return {
            report.client_id: relative_divergence(
                report.delta, report.spec.masked(space.take(mean_delta, report.spec)), self.estimate_eps
            )
            for report in reports
        }
