"""What an audit of one run, or of several runs pooled, holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from widthwise.audit.power import Design, Power, smallest_detectable

COLUMNS = MARGINAL, CAPACITY, DATA, WIDTH = (
    "r_estimate_divergence",
    "r_estimate_capacity",
    "r_estimate_divergence_given_capacity",
    "r_width_divergence_given_capacity",
)


@dataclass(frozen=True)
class Correlation:
    """One cell of the table. All its figures rest on the runs in which the correlation is defined.

    Attributes:
        value: The correlation (over several runs: its mean), or None where it is undefined (``reason`` says
            why).
        p_value: Two-sided permutation p-value, or None where it is undefined or nothing can be permuted.
        run_interval: 95 % t interval over runs, None for fewer than two. The one that speaks of further
            seeds.
        interval: 95 % bootstrap interval over clients, and over runs where there are several: what chance
            among the clients does.
        test: How the p-value was found, in words.
        degenerate_resamples: Bootstrap samples in which the correlation is undefined.
        reason: Why ``value`` or ``p_value`` or ``interval`` is None.
        tested: The correlation that the test looks at: inside capacity tiers where capacity is held
            fixed, otherwise ``value``.
        strata: For each run in which the correlation is defined, how many clients the test exchanges with
            each other: those of each capacity where it is held fixed, otherwise all.
        left_out: For each other run, why the correlation is undefined in it.
    """

    value: float | None
    p_value: float | None = None
    run_interval: tuple[float, float] | None = None
    interval: tuple[float, float] | None = None
    test: str | None = None
    degenerate_resamples: int = 0
    reason: str | None = None
    tested: float | None = None
    strata: Design = ()
    left_out: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        """Number of runs in which the correlation is defined."""
        return len(self.strata)

    @property
    def clients(self) -> int:
        """Number of clients of these runs."""
        return sum(map(sum, self.strata))

    @property
    def detectable_r(self) -> float | None:
        """Smallest true correlation that the test finds in 80 % of cases (``smallest_detectable``)."""
        return smallest_detectable(self.strata)

    def basis(self) -> dict[str, Any]:
        """Return what the figures rest on, as a JSON-able dictionary."""
        return {
            "runs": self.runs,
            "clients": self.clients,
            "detectable_r": self.detectable_r,
            "left_out": list(self.left_out),
        }


@dataclass(frozen=True)
class TierCorrelation:
    """Correlation of statistic and label divergence among the clients of one capacity.

    Attributes:
        tier: The capacity.
        runs: Number of runs in which the correlation is defined.
        clients: Number of clients of this capacity in these runs; in all runs where it is defined in none.
        r_estimate_divergence: The correlation, over several runs its mean; None where it is undefined.
        reason: Why it is undefined.
    """

    tier: float
    runs: int
    clients: int
    r_estimate_divergence: float | None
    reason: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON-able dictionary."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Correlations:
    """The correlations of one kind, Pearson's or Spearman's.

    Attributes:
        cells: One ``Correlation`` for each name of ``COLUMNS``.
        within_tier: One row per capacity, ascending.
    """

    cells: Mapping[str, Correlation]
    within_tier: tuple[TierCorrelation, ...]

    def __getitem__(self, column: str) -> Correlation:
        return self.cells[column]

    def to_json(self) -> dict[str, Any]:
        """Return the correlations as JSON-able data: None (never NaN) where a value is undefined."""
        cells = self.cells
        return {
            **{column: cell.value for column, cell in cells.items()},
            "p_values": {column: cell.p_value for column, cell in cells.items()},
            "run_intervals": {column: _pair(cell.run_interval) for column, cell in cells.items()},
            "intervals": {column: _pair(cell.interval) for column, cell in cells.items()},
            "tested": {column: cell.tested for column, cell in cells.items()},
            "tests": {column: cell.test for column, cell in cells.items()},
            "degenerate_resamples": {column: cell.degenerate_resamples for column, cell in cells.items()},
            "reasons": {column: cell.reason for column, cell in cells.items() if cell.reason},
            "basis": {column: cell.basis() for column, cell in cells.items()},
            "within_tier": [tier.to_json() for tier in self.within_tier],
        }


@dataclass(frozen=True)
class AuditTable:
    """The correlations of one run, or of several runs pooled.

    Attributes:
        sizes: For each run, its number of clients.
        pearson: Correlations of the numbers.
        spearman: Correlations of their ranks.
    """

    sizes: tuple[int, ...]
    pearson: Correlations
    spearman: Correlations

    @property
    def clients(self) -> int:
        """Number of clients, over all runs; a cell may rest on fewer (``Correlation.clients``)."""
        return sum(self.sizes)

    @property
    def runs(self) -> int:
        """Number of runs; a cell may rest on fewer (``Correlation.runs``)."""
        return len(self.sizes)

    @property
    def power(self) -> Power:
        """What the tests of statistic and label divergence could have seen."""
        return Power(self[DATA].detectable_r, self[MARGINAL].detectable_r)

    @property
    def cells(self) -> Mapping[str, Correlation]:
        """Pearson's correlations."""
        return self.pearson.cells

    @property
    def within_tier(self) -> tuple[TierCorrelation, ...]:
        """Pearson's correlations inside each capacity tier."""
        return self.pearson.within_tier

    def __getitem__(self, column: str) -> Correlation:
        return self.pearson[column]

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON-able data: Pearson's correlations on top, Spearman's beside them."""
        return {
            "clients": self.clients,
            **self.pearson.to_json(),
            "spearman": self.spearman.to_json(),
            "power": self.power.to_json(),
        }


def _pair(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)
