"""Width by estimated heterogeneity, in the wrong direction."""

from __future__ import annotations

import numpy as np

from widthwise.allocation.adaptive import Adaptive
from widthwise.allocation.policy import PolicyState, Population, Widths


class ReversedAdaptive(Adaptive):
    """Most width for the clients whose updates diverge least: eq. 6 of ``adaptive`` on mirrored estimates.

    The client whose estimate has rank k of N gets the width that eq. 6 gives, before caps and guarantee,
    to the client of rank N + 1 - k; clients with equal estimates get the same, from the mean over their
    ranks. Mirroring permutes the estimates, so their mean, and the mean of eq. 6 before caps, is the same
    as in ``adaptive``: only the direction differs. Within caps the mean widths may differ, since which
    clients are cut depends on who wants more.

    If divergence told which clients need width, this would do worse than ``adaptive`` and than random
    widths at its cost.

    Source: widthwise, as a control for Moayedikia and Troncoso Lora, arXiv 2608.07157, eq. 6.
    """

    def observe(self, state: PolicyState, population: Population, estimates: Widths) -> PolicyState:
        """Return the state in which widths follow eq. 6 at the mirrored estimates [N]."""
        return super().observe(state, population, mirrored(estimates))


def mirrored(values: Widths) -> Widths:
    """Return [N] values of opposite rank: the smallest becomes the largest, and equal ones stay equal.

    Example:
        >>> mirrored(np.array([3.0, 1.0, 2.0, 1.0])).tolist()
        [1.0, 2.5, 1.0, 2.5]
    """
    order = np.argsort(values, kind="stable")
    opposite = np.empty_like(values)
    opposite[order] = values[order[::-1]]
    _, kind, count = np.unique(values, return_inverse=True, return_counts=True)
    mean: Widths = np.bincount(kind, weights=opposite) / count
    return mean[kind]
