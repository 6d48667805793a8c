"""The audit of runs, put together: tables, pooled tables, what they mean, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from widthwise.audit.clients import Clients
from widthwise.audit.measure import pooled_table
from widthwise.audit.power import ALPHA, POWER
from widthwise.audit.table import COLUMNS, DATA, AuditTable
from widthwise.audit.text import cell_parts, detectable_text, p_text
from widthwise.audit.verdict import sentence, sentence_over_runs

HEADINGS = ("r(H, TV)", "r(H, capacity)", "r(H, TV | capacity)", "r(width, TV | capacity)")
METHOD = (
    "H: the statistic (of a run: its final smoothed update divergence). TV: label divergence (of a run: "
    "total-variation distance of a client's labels to all labels). '| capacity': after linear regression on "
    "capacity. p: two-sided permutation test over all clients or, given capacity, among clients of equal "
    "capacity. Intervals: 95 %, of one run by percentile bootstrap over its clients. Of pooled runs, "
    "Student's t over runs comes first, the one that speaks of further seeds; the bootstrap over clients and "
    "runs shows the clients' chance, and where few runs differ it is too short for more."
)
POWER_NOTE = (
    f"Detectable r: smallest true correlation inside capacity tiers that a test at {ALPHA:.0%} finds in "
    f"{POWER:.0%} of cases, given the number of clients of each capacity in the runs that "
    "r(H, TV | capacity) rests on."
)


@dataclass(frozen=True)
class Case:
    """One run to be audited.

    Attributes:
        run: Name of its experiment; runs of one name are pooled.
        seed: What tells it from the other runs of the experiment, None where it is the only one.
        method: Its method, None where that is not known.
        clients: The numbers.
        one_width: Whether all clients trained the same width throughout.
    """

    run: str
    seed: int | str | None
    method: str | None
    clients: Clients
    one_width: bool


@dataclass(frozen=True)
class RunAudit:
    """The audit of one run.

    Attributes:
        run: Name of the run's experiment, different for experiments of one report.
        seed: Its seed, or what else tells it from the experiment's other runs.
        method: Its method.
        table: The correlations.
        one_width: Whether all clients trained the same width throughout.
        sentence: What they mean.
    """

    run: str
    seed: int | str | None
    method: str | None
    table: AuditTable
    one_width: bool
    sentence: str

    @property
    def name(self) -> str:
        """Experiment and seed in one word."""
        seed = f" s{self.seed}" if isinstance(self.seed, int) else f" {self.seed}"
        return self.run if self.seed is None else f"{self.run}{seed}"

    def to_json(self) -> dict[str, Any]:
        """Return the audit as JSON-able data: None (never NaN) where a value is undefined."""
        head = {"run": self.run, "seed": self.seed, "method": self.method}
        return {**head, **self.table.to_json(), "sentence": self.sentence}


@dataclass(frozen=True)
class PooledAudit:
    """The audit of all runs of one experiment together."""

    seeds: tuple[int | str | None, ...]
    table: AuditTable
    sentence: str

    def to_json(self) -> dict[str, Any]:
        """Return the audit as JSON-able data: None (never NaN) where a value is undefined."""
        head = {"runs": self.table.runs, "seeds": list(self.seeds)}
        return {**head, **self.table.to_json(), "sentence": self.sentence}


@dataclass(frozen=True)
class Spread:
    """A column over the seeds of one experiment; ``sd`` is None for fewer than two values."""

    count: int
    mean: float | None
    sd: float | None
    min: float | None
    max: float | None


@dataclass(frozen=True)
class AuditReport:
    """Audits of one or several runs.

    Attributes:
        runs: One audit per run.
        summary: Experiment -> column -> spread over its seeds.
        sentence: What the runs show together.
        pooled: Experiment -> audit of its runs together, for experiments of more than one run.
    """

    runs: tuple[RunAudit, ...]
    summary: Mapping[str, Mapping[str, Spread]]
    sentence: str
    pooled: Mapping[str, PooledAudit]

    def repeated(self) -> dict[str, Mapping[str, Spread]]:
        """Return the summary of the experiments that have more than one run."""
        return {label: columns for label, columns in self.summary.items() if label in self.pooled}

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-able data."""
        return {
            "runs": [run.to_json() for run in self.runs],
            "pooled": {label: pooled.to_json() for label, pooled in self.pooled.items()},
            "summary": {
                g: {c: dict(vars(s)) for c, s in columns.items()} for g, columns in self.summary.items()
            },
            "sentence": self.sentence,
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield both tables, the method, the power and what it all means."""
        rows = [(run.name, run.table, "") for run in self.runs]
        rows += [(f"mean of {label}", pooled.table, "bold") for label, pooled in self.pooled.items()]
        numbers = Table("run", *HEADINGS, "detectable r", title="Capacity-confound audit")
        ranks = Table("run", *HEADINGS, title="The same by ranks (Spearman)")
        for name, table, style in rows:
            lines = ("\n".join(cell_parts(table[column])) for column in COLUMNS)
            numbers.add_row(name, *lines, detectable_text(table[DATA]), style=style)
            ranks.add_row(name, *(_short(table, column) for column in COLUMNS), style=style)
        yield numbers
        yield ranks
        yield METHOD
        yield POWER_NOTE
        for label, pooled in self.pooled.items():
            if pooled.sentence != self.sentence:
                yield f"{label}: {pooled.sentence}"
        yield self.sentence


def assemble(
    cases: Sequence[Case], subject: str, *, permutations: int, bootstrap: int, seed: int
) -> AuditReport:
    """Audit every run, and all runs of each experiment together.

    Args:
        cases: The runs.
        subject: What the sentences call the statistic.
        permutations: Arrangements that each permutation test may look at.
        bootstrap: Bootstrap resamples.
        seed: Root of the random arrangements and resamples.

    Returns:
        The report, its runs in the order of ``cases``.
    """

    def table_of(*some: Case) -> tuple[AuditTable, bool, str]:
        clients = [case.clients for case in some]
        table = pooled_table(clients, permutations=permutations, bootstrap=bootstrap, seed=seed)
        alike = all(case.one_width for case in some)
        return table, alike, sentence(table, subject=subject, one_width=alike)

    audits = tuple(RunAudit(case.run, case.seed, case.method, *table_of(case)) for case in cases)
    summary, pooled = {}, {}
    for label in dict.fromkeys(case.run for case in cases):
        tables = [one.table for one in audits if one.run == label]
        summary[label] = {c: _spread([table[c].value for table in tables]) for c in COLUMNS}
        members = [case for case in cases if case.run == label]
        if len(members) > 1:
            table, _, words = table_of(*members)
            pooled[label] = PooledAudit(tuple(case.seed for case in members), table, words)
    if len(summary) == 1:
        together = next((one.sentence for one in pooled.values()), audits[0].sentence)
    else:
        together = sentence_over_runs([one.table for one in audits], [one.one_width for one in audits])
    return AuditReport(audits, summary, together, pooled)


def _spread(values: Sequence[float | None]) -> Spread:
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if not len(known):
        return Spread(0, None, None, None, None)
    sd = float(known.std(ddof=1)) if len(known) > 1 else None
    return Spread(len(known), float(known.mean()), sd, float(known.min()), float(known.max()))


def _short(table: AuditTable, column: str) -> str:
    cell = table.spearman[column]
    if cell.value is None:
        return "–"
    return f"{cell.value:+.2f}" + ("" if cell.p_value is None else f" ({p_text(cell.p_value)})")
