"""The four correlations of one run, from plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from widthwise.audit.correlation import Array, correlation, is_constant, residuals
from widthwise.audit.resampling import bootstrap_interval, permutation_test
from widthwise.core.errors import InputError
from widthwise.core.seeds import SeedTree

COLUMNS = (
    "r_estimate_divergence",
    "r_estimate_capacity",
    "r_estimate_divergence_given_capacity",
    "r_width_divergence_given_capacity",
)


@dataclass(frozen=True)
class Correlation:
    """One cell of the table.

    Attributes:
        value: The correlation, or None where it is undefined (``reason`` says why).
        p_value: Two-sided permutation p-value, or None where it is undefined or nothing can be permuted.
        interval: 95 % bootstrap interval over clients.
        test: How the p-value was found, in words.
        degenerate_resamples: Bootstrap samples in which the correlation is undefined.
        reason: Why ``value`` or ``p_value`` or ``interval`` is None.
    """

    value: float | None
    p_value: float | None = None
    interval: tuple[float, float] | None = None
    test: str | None = None
    degenerate_resamples: int = 0
    reason: str | None = None


@dataclass(frozen=True)
class TierCorrelation:
    """Correlation of statistic and label divergence among the clients of one capacity."""

    tier: float
    clients: int
    r_estimate_divergence: float | None
    reason: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON-able dictionary."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class AuditTable:
    """The correlations of one run.

    Attributes:
        clients: Number of clients, N.
        cells: One ``Correlation`` for each name of ``COLUMNS``.
        within_tier: One row per capacity, ascending.
    """

    clients: int
    cells: Mapping[str, Correlation]
    within_tier: tuple[TierCorrelation, ...]

    def __getitem__(self, column: str) -> Correlation:
        return self.cells[column]


def audit_table(
    statistic: ArrayLike | None,
    capacity: ArrayLike,
    divergence: ArrayLike,
    width: ArrayLike | None = None,
    *,
    permutations: int = 9_999,
    bootstrap: int = 2_000,
    seed: int = 0,
) -> AuditTable:
    """Correlate a client statistic with capacity and with label divergence, alone and given capacity.

    Source: Moayedikia and Troncoso Lora (2026), Table 5. We add p-values and intervals. p-values of the
    marginal columns permute the statistic over all clients, those of the "given capacity" columns only among
    clients of equal capacity: the test then needs no assumption on how the statistic depends on
    capacity, where the partial correlation itself removes a straight line only.

    Args:
        statistic: [N] client statistic taken from updates (the smoothed divergence estimate), or None where
            none was measured.
        capacity: [N] largest width of each client.
        divergence: [N] label divergence of each client, in [0, 1].
        width: [N] final width of each client, or None where the widths are not of interest.
        permutations: Arrangements that each permutation test may look at.
        bootstrap: Bootstrap resamples over clients.
        seed: Root of the random arrangements and resamples.

    Returns:
        The table; undefined cells hold None and a reason, never NaN.

    Raises:
        InputError: if lengths differ, a value is not finite, or there are no clients.

    Example:
        >>> table = audit_table([4, 3, 2, 1], [1, 2, 3, 4], [0.1, 0.4, 0.2, 0.3], permutations=24)
        >>> cell = table["r_estimate_capacity"]
        >>> round(cell.value, 6), cell.test, round(cell.p_value * 24)
        (-1.0, 'permutation over all 24 arrangements', 2)
    """
    arrays = {"capacity": _vector("capacity", capacity)}
    count = len(arrays["capacity"])
    given_arrays = {"statistic": statistic, "divergence": divergence, "width": width}
    arrays |= {name: _vector(name, a, count) for name, a in given_arrays.items() if a is not None}
    tree = SeedTree(seed).at("audit")
    plans: dict[str, tuple[str, str, bool]] = {
        COLUMNS[0]: ("statistic", "divergence", False),
        COLUMNS[1]: ("statistic", "capacity", False),
        COLUMNS[2]: ("statistic", "divergence", True),
        COLUMNS[3]: ("width", "divergence", True),
    }
    cells = {
        column: _cell(arrays, x, y, given, permutations, bootstrap, tree.at(column))
        for column, (x, y, given) in plans.items()
    }
    tiers = tuple(
        _tier(float(tier), arrays, arrays["capacity"] == tier) for tier in np.unique(arrays["capacity"])
    )
    return AuditTable(count, cells, tiers)


_WORDS = {
    "statistic": "the estimate",
    "capacity": "the capacity",
    "divergence": "the label divergence",
    "width": "the width",
}


def _cell(
    arrays: Mapping[str, Array],
    x_name: str,
    y_name: str,
    given_capacity: bool,
    permutations: int,
    bootstrap: int,
    tree: SeedTree,
) -> Correlation:
    if x_name not in arrays:
        return Correlation(None, reason=f"{_WORDS[x_name]} was not measured")
    x, y = arrays[x_name], arrays[y_name]
    given = arrays["capacity"] if given_capacity else None
    needed = 4 if given_capacity else 3
    if len(x) < needed:
        return Correlation(None, reason=f"there are fewer than {needed} clients")
    for name, values in ((x_name, x), (y_name, y)):
        if is_constant(values):
            return Correlation(None, reason=f"{_WORDS[name]} is the same for every client")
        if given is not None and _fixed_by(given, values):
            return Correlation(None, reason=f"{_WORDS[name]} is the same for all clients of equal capacity")
        if not residuals(values, given).any():
            return Correlation(None, reason=f"{_WORDS[name]} is a straight line in capacity: nothing is left")
    strata = np.zeros(len(x)) if given is None else given
    test = permutation_test(x, y, strata, permutations, tree.at("permutation").numpy())
    interval = bootstrap_interval(x, y, given, bootstrap, tree.at("bootstrap").numpy())
    reason = None
    if test is None:
        reason = "no two clients have the same capacity, so nothing can be permuted: no p-value"
    elif interval is None:
        reason = "undefined in most resamples, so no interval"
    return Correlation(
        value=float(correlation(x, y, given)),
        p_value=test.p_value if test else None,
        interval=(interval.low, interval.high) if interval else None,
        test=str(test) if test else None,
        degenerate_resamples=interval.degenerate if interval else bootstrap,
        reason=reason,
    )


def _fixed_by(capacity: Array, values: Array) -> bool:
    groups = [values[capacity == tier] for tier in np.unique(capacity)]
    shared = [group for group in groups if len(group) > 1]
    return bool(shared) and all(is_constant(group) for group in shared)


def _tier(tier: float, arrays: Mapping[str, Array], members: NDArray[np.bool_]) -> TierCorrelation:
    count = int(members.sum())
    if "statistic" not in arrays:
        return TierCorrelation(tier, count, None, f"{_WORDS['statistic']} was not measured")
    if count < 3:
        return TierCorrelation(tier, count, None, "fewer than 3 clients")
    r = float(correlation(arrays["statistic"][members], arrays["divergence"][members]))
    if np.isnan(r):
        return TierCorrelation(tier, count, None, "no variation inside the tier")
    return TierCorrelation(tier, count, r, None)


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
