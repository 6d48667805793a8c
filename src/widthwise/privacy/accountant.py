"""What the noise of a run is worth: epsilon, from a library that is kept for it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widthwise.core.errors import ConfigError

#: Replacing one client changes the sum by at most so many times the clip: one update out, another one in.
SENSITIVITY = 2


def epsilon(noise_multiplier: float, delta: float, clients: int, cohort: int, rounds: int) -> float:
    """Return the epsilon of (epsilon, delta)-differential privacy after so many rounds.

    Neighbours are two federations that differ in the data of one client (*replace one*; the number of
    clients and their capacities are public). In each round a cohort of fixed size is drawn without
    replacement and stays secret, and the Gaussian mechanism of sensitivity 2 C and standard deviation z C
    releases a sum. At each order the Renyi divergence of a round is at most the smaller of two bounds that
    both hold: that of the mechanism on a secret sample, and that of the mechanism on a known one (which is
    the smaller where a cohort is a large share of the clients). Rounds compose by adding up.

    Source: Wang, Balle, Kasiviswanathan 2019, arXiv 1808.00087, theorem 27, for the sample; Mironov 2017,
    arXiv 1702.07476, for the composition; Canonne, Kamath, Steinke 2020, arXiv 2004.00010, proposition 12,
    for the conversion; all as in the package dp-accounting. Departs: the smaller of the two bounds.

    Args:
        noise_multiplier: z > 0.
        delta: In (0, 1).
        clients: Number of registered clients.
        cohort: Clients of a round.
        rounds: Number of rounds.

    Raises:
        ConfigError: if dp-accounting is not installed.
    """
    orders, divergences = _of_a_round(noise_multiplier, clients, cohort)
    found, _ = _dp_accounting().rdp.compute_epsilon(orders, rounds * divergences, delta)
    return float(found)


@cache
def _of_a_round(
    noise_multiplier: float, clients: int, cohort: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return orders and, of each, the Renyi divergence of a round at most."""
    library = _dp_accounting()
    # The library means the noise in units of the sensitivity.
    known = library.GaussianDpEvent(noise_multiplier / SENSITIVITY)
    secret = library.SampledWithoutReplacementDpEvent(clients, cohort, known)
    accountants = [
        library.rdp.RdpAccountant(neighboring_relation=library.NeighboringRelation.REPLACE_ONE).compose(event)
        for event in (known, secret)
    ]
    return accountants[0].orders, np.minimum(*(accountant.rdp for accountant in accountants))


def _dp_accounting() -> Any:
    try:
        import dp_accounting
    except ImportError as error:
        raise ConfigError(
            "privacy is set, but the package 'dp-accounting' is not installed. "
            "Run: pip install 'widthwise[privacy]'"
        ) from error
    return dp_accounting
