"""The capacity-confound audit of stored runs: does a client statistic measure data or only capacity?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from widthwise.audit.groups import group_runs
from widthwise.audit.table import COLUMNS, AuditTable, audit_table
from widthwise.audit.verdict import sentence, sentence_over_runs
from widthwise.core.errors import CheckpointError, InputError
from widthwise.engine.runs import RunResult, load_run

HEADINGS = ("r(H, TV)", "r(H, capacity)", "r(H, TV | capacity)", "r(width, TV | capacity)")
METHOD = (
    "H: final smoothed update divergence. TV: total-variation distance of a client's labels to all labels. "
    "'| capacity': after linear regression on capacity. p: two-sided permutation test over all clients or, "
    "given capacity, among clients of equal capacity. Intervals: 95 %, percentile bootstrap over clients."
)


@dataclass(frozen=True)
class RunAudit:
    """The audit of one run.

    Attributes:
        run: Name of the run's experiment, different for experiments of one report.
        seed: Its seed.
        method: Its method.
        table: The correlations.
        one_width: Whether all clients trained the same width throughout.
        sentence: What they mean.
    """

    run: str
    seed: int
    method: str
    table: AuditTable
    one_width: bool
    sentence: str

    def to_json(self) -> dict[str, Any]:
        """Return the audit as JSON-able data: None (never NaN) where a value is undefined."""
        cells = self.table.cells
        return {
            "run": self.run,
            "seed": self.seed,
            "method": self.method,
            "clients": self.table.clients,
            **{column: cells[column].value for column in COLUMNS},
            "p_values": {column: cells[column].p_value for column in COLUMNS},
            "intervals": {c: None if (i := cells[c].interval) is None else list(i) for c in COLUMNS},
            "tests": {column: cells[column].test for column in COLUMNS},
            "degenerate_resamples": {column: cells[column].degenerate_resamples for column in COLUMNS},
            "reasons": {column: cells[column].reason for column in COLUMNS if cells[column].reason},
            "within_tier": [tier.to_json() for tier in self.table.within_tier],
            "sentence": self.sentence,
        }


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
    """

    runs: tuple[RunAudit, ...]
    summary: Mapping[str, Mapping[str, Spread]]
    sentence: str

    def repeated(self) -> dict[str, Mapping[str, Spread]]:
        """Return the summary of the experiments that have more than one run."""
        counts = Counter(run.run for run in self.runs)
        return {label: columns for label, columns in self.summary.items() if counts[label] > 1}

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-able data."""
        summary = {g: {c: dict(vars(s)) for c, s in columns.items()} for g, columns in self.summary.items()}
        return {"runs": [run.to_json() for run in self.runs], "summary": summary, "sentence": self.sentence}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, the method and the sentence."""
        table = Table("run", *HEADINGS, title="Capacity-confound audit")
        for run in self.runs:
            table.add_row(f"{run.run} s{run.seed}", *(_cell_text(run.table, column) for column in COLUMNS))
        for group, columns in self.repeated().items():
            table.add_row(f"mean of {group}", *(_spread_text(columns[c]) for c in COLUMNS), style="bold")
        yield table
        yield METHOD
        yield self.sentence


def audit(
    results: RunResult | Path | str | Sequence[RunResult | Path | str],
    *,
    permutations: int = 9_999,
    bootstrap: int = 2_000,
    seed: int = 0,
) -> AuditReport:
    """Audit finished runs: the four correlations of the paper's Table 5, with tests and intervals.

    Source: Moayedikia and Troncoso Lora (2026), Table 5 and the recommended practice of checking any client
    statistic within capacity strata. Departures: see ``audit_table``.

    Args:
        results: One run or several, as results or as run folders.
        permutations: Arrangements that each permutation test may look at.
        bootstrap: Bootstrap resamples over clients.
        seed: Root of the random arrangements and resamples.

    Returns:
        The report; print it with rich or take ``to_json()``.

    Raises:
        InputError: if there is no run, or one is unfinished.
        CheckpointError: if a run folder is damaged.
    """
    given = [results] if isinstance(results, RunResult | Path | str) else list(results)
    if not given:
        raise InputError("the list of runs is empty, but an audit needs at least one. Name a run folder.")
    if permutations < 1 or bootstrap < 1:
        raise InputError(
            f"permutations is {permutations} and bootstrap is {bootstrap}, but both must be at least 1. "
            "Raise them."
        )
    runs = [one if isinstance(one, RunResult) else load_run(one) for one in given]
    groups = group_runs(runs)
    audits = {
        id(run): _audit_run(run, group.label, permutations, bootstrap, seed)
        for group in groups
        for run in group.runs
    }
    summary = {
        group.label: {
            column: _spread([audits[id(run)].table[column].value for run in group.runs]) for column in COLUMNS
        }
        for group in groups
    }
    every = tuple(audits[id(run)] for run in runs)
    if len(every) == 1:
        together = every[0].sentence
    else:
        together = sentence_over_runs([one.table for one in every], [one.one_width for one in every])
    return AuditReport(every, summary, together)


def _audit_run(run: RunResult, label: str, permutations: int, bootstrap: int, seed: int) -> RunAudit:
    if run.result is None:
        raise CheckpointError(
            f"run {str(run.path)!r} is unfinished, but an audit needs its final estimates. Resume it first."
        )
    capacities = np.asarray(run.partition["capacities"], dtype=np.float64)
    table = audit_table(
        run.result["estimates"],
        capacities,
        run.partition["label_divergence"],
        run.result["widths"],
        permutations=permutations,
        bootstrap=bootstrap,
        seed=seed,
    )
    trained = run.clients.loc[run.clients["participated"].astype(bool), "width"]
    one_width = trained.nunique() == 1
    verdict = sentence(table, one_width=one_width)
    return RunAudit(label, run.seed, run.method, table, one_width, verdict)


def _spread(values: Sequence[float | None]) -> Spread:
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if not len(known):
        return Spread(0, None, None, None, None)
    sd = float(known.std(ddof=1)) if len(known) > 1 else None
    return Spread(len(known), float(known.mean()), sd, float(known.min()), float(known.max()))


def _cell_text(table: AuditTable, column: str) -> str:
    cell = table[column]
    if cell.value is None:
        return f"- ({cell.reason})"
    p = "" if cell.p_value is None else f"\np = {cell.p_value:.3g}"
    interval = "" if cell.interval is None else f"\n[{cell.interval[0]:+.2f}, {cell.interval[1]:+.2f}]"
    return f"{cell.value:+.2f}{p}{interval}"


def _spread_text(spread: Spread) -> str:
    if spread.mean is None:
        return "-"
    sd = "" if spread.sd is None else f" ± {spread.sd:.2f}"
    return f"{spread.mean:+.2f}{sd}\n{spread.min:+.2f} .. {spread.max:+.2f} (n = {spread.count})"
