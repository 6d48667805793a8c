"""What an audit of one run, or of several runs pooled, holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from widthwise.audit.power import Power, power_of

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
        value: The correlation (over several runs: its mean), or None where it is undefined (``reason`` says
            why).
        p_value: Two-sided permutation p-value, or None where it is undefined or nothing can be permuted.
        interval: 95 % bootstrap interval over clients, and over runs where there are several.
        test: How the p-value was found, in words.
        degenerate_resamples: Bootstrap samples in which the correlation is undefined.
        reason: Why ``value`` or ``p_value`` or ``interval`` is None.
        tested: The correlation that the test looks at: inside capacity tiers where capacity is held
            fixed, otherwise ``value``.
        runs: Number of runs in which the correlation is defined.
        run_interval: 95 % t interval over runs, None for fewer than two.
    """

    value: float | None
    p_value: float | None = None
    interval: tuple[float, float] | None = None
    test: str | None = None
    degenerate_resamples: int = 0
    reason: str | None = None
    tested: float | None = None
    runs: int = 0
    run_interval: tuple[float, float] | None = None


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
            "intervals": {column: _pair(cell.interval) for column, cell in cells.items()},
            "run_intervals": {column: _pair(cell.run_interval) for column, cell in cells.items()},
            "tested": {column: cell.tested for column, cell in cells.items()},
            "tests": {column: cell.test for column, cell in cells.items()},
            "degenerate_resamples": {column: cell.degenerate_resamples for column, cell in cells.items()},
            "reasons": {column: cell.reason for column, cell in cells.items() if cell.reason},
            "within_tier": [tier.to_json() for tier in self.within_tier],
        }


@dataclass(frozen=True)
class AuditTable:
    """The correlations of one run, or of several runs pooled.

    Attributes:
        tier_sizes: For each run, the number of clients of each capacity.
        pearson: Correlations of the numbers.
        spearman: Correlations of their ranks.
    """

    tier_sizes: tuple[tuple[int, ...], ...]
    pearson: Correlations
    spearman: Correlations

    @property
    def clients(self) -> int:
        """Number of clients, over all runs."""
        return sum(map(sum, self.tier_sizes))

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.tier_sizes)

    @property
    def power(self) -> Power:
        """What the tests could have seen."""
        return power_of(self.tier_sizes)

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
