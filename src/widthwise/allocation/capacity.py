"""Each client at its capacity."""

from __future__ import annotations

from widthwise.allocation.policy import Policy


class Capacity(Policy):
    """Every client trains the largest width that it can: p_i = p_i^max.

    Source: Diao et al. 2021 (HeteroFL), static rates. Departs: no.
    """
