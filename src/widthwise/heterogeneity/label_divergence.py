"""Ground truth for an estimate: how far each client's labels are from those of all clients.

Legend: N clients, K classes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from widthwise.core.errors import InputError


def label_divergence(
    counts: npt.NDArray[np.int64], totals: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.float64]:
    """Return the total-variation distance of each client's label distribution to the global one.

    Formula: TV_i = 1/2 sum_k |p_ik - p_k| with p_ik = counts_ik / sum_k counts_ik and
    p_k = sum_i counts_ik / sum_ik counts_ik: the distribution over all clients' samples, so a large client
    weighs more in it.

    Source: arXiv 2608.07157v1, Table 5; departs: no.

    Args:
        counts: Samples of each class that each client holds, [N, K].
        totals: Samples of each class that all clients hold, [K], where ``counts`` lists only some of them.

    Returns:
        float64 [N], in [0, 1): 0 for a client that mirrors the whole.

    Raises:
        InputError: if a client holds no sample, since it has no distribution.

    Example:
        >>> label_divergence(np.array([[2, 2], [4, 0], [0, 4]])).tolist()
        [0.0, 0.5, 0.5]
    """
    sizes = counts.sum(axis=1, dtype=np.float64)
    if not sizes.all():
        raise InputError(
            f"client {int(sizes.argmin())} holds 0 samples, but a label distribution needs at least 1. "
            "Choose a partition without empty clients."
        )
    local = counts / sizes[:, None]
    everybody = counts.sum(axis=0) if totals is None else totals
    overall = everybody / everybody.sum()
    divergence: npt.NDArray[np.float64] = 0.5 * np.abs(local - overall).sum(axis=1)
    return divergence
