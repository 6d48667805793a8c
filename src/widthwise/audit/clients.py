"""The plain numbers that an audit is about: one statistic, capacity and label divergence per client."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from widthwise.audit.correlation import Array, in_range
from widthwise.core.errors import InputError


class Clients:
    """The clients of one run, as checked arrays.

    Attributes:
        capacity: [N] largest width (or any other measure of size) of each client.
        divergence: [N] label divergence of each client.
        statistic: [N] statistic taken from the clients' updates, or None where none was measured.
        width: [N] final width of each client, or None where widths are not of interest.
        name: What messages call the statistic.

    Raises:
        InputError: if lengths differ, a value is not finite, or there are no clients.
    """

    def __init__(
        self,
        statistic: ArrayLike | None,
        capacity: ArrayLike,
        divergence: ArrayLike,
        width: ArrayLike | None = None,
        name: str = "statistic",
    ) -> None:
        self.name = name
        self.capacity = _vector("capacity", capacity)
        count = len(self.capacity)
        self.divergence = _vector("divergence", divergence, count)
        self.statistic = None if statistic is None else _vector("statistic", statistic, count)
        self.width = None if width is None else _vector("width", width, count)

    def __len__(self) -> int:
        return len(self.capacity)

    def variable(self, name: str) -> Array:
        """Return capacity, divergence, statistic or width in a unit in which squares stay within floats.

        The unit is a power of two, so that nothing is rounded; correlations do not depend on it.
        """
        values: Array = getattr(self, name)
        return in_range(values)


def _vector(name: str, values: ArrayLike, length: int | None = None) -> Array:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or not len(vector) or (length is not None and len(vector) != length):
        rule = "one number per client" if length is None else f"one number for each of {length} clients"
        raise InputError(f"{name} is of shape {vector.shape}, but it must hold {rule}. Pass a flat sequence.")
    if not np.isfinite(vector).all():
        at = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise InputError(
            f"{name} is {vector[at]} for client {at}, but every value must be finite. "
            "Leave that run out of the audit."
        )
    return vector
