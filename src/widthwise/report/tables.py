"""Tables of the page, as text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from widthwise.audit import AuditReport, RunAudit, RunGroup
from widthwise.audit.confound import HEADINGS, Spread
from widthwise.audit.groups import NOT_A_SETTING, differences, flatten
from widthwise.audit.table import COLUMNS, DATA
from widthwise.audit.text import cell_parts, detectable_text
from widthwise.engine.runs import RunResult
from widthwise.report.comparison import finished, tier_means, values

#: More tiers than this are no longer told apart one by one.
MAX_TIERS = 8
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Table:
    """A table: caption, column heads, and rows whose first cell names the row."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def mean_sd(numbers: Sequence[float], scale: float = 1.0, digits: int = 1) -> str:
    """Return "mean ± sd", or the mean alone where there is one number, or a dash where there is none.

    Example:
        >>> mean_sd([0.7, 0.8], 100), mean_sd([0.7], 100), mean_sd([])
        ('75.0 ± 7.1', '70.0', '–')
    """
    if not numbers:
        return "–"
    scaled = scale * np.asarray(numbers)
    text = f"{scaled.mean():,.{digits}f}"
    return text if len(scaled) < 2 else f"{text} ± {scaled.std(ddof=1):,.{digits}f}"


def results_table(groups: Sequence[RunGroup]) -> Table:
    """Return the results of every experiment: mean and sd over its finished seeds."""
    power = _power(max((number for group in groups for number in values(group, "macs")), default=1.0))
    macs = f"MACs (10{str(power).translate(SUPERSCRIPTS)})"
    head = ("method", "seeds", "best acc. (%)", "final acc. (%)", "avg. width", "MB up", "MB down", macs)
    rows = []
    for group in groups:
        row = (
            mean_sd(values(group, "best_accuracy"), 100),
            mean_sd(values(group, "final_accuracy"), 100),
            mean_sd(values(group, "mean_width"), 1, 2),
            mean_sd(values(group, "bytes_up"), 1e-6),
            mean_sd(values(group, "bytes_down"), 1e-6),
            mean_sd(values(group, "macs"), 10.0**-power, 2),
        )
        open_runs = len(group.runs) - len(finished(group))
        seeds = f"{len(finished(group))}" + (f" (+ {open_runs} unfinished)" if open_runs else "")
        masked = " (masked compute)" if any(run.masked for run in group.runs) else ""
        rows.append((group.label + masked, seeds, *row))
    caption = (
        "Mean over seeds, ± standard deviation where there are several. MB = 10⁶ bytes over the whole run."
    )
    return Table(caption, head, tuple(rows))


def _power(number: float) -> int:
    return 3 * int(np.log10(max(number, 1.0)) // 3)


def tier_table(groups: Sequence[RunGroup]) -> Table | None:
    """Return the accuracy of every tier's sub-model, or None where nobody measured it."""
    means = {group.label: tier_means(group.runs) for group in groups}
    tiers = sorted({tier for by_tier in means.values() for tier in by_tier})
    if not tiers:
        return None
    rows = tuple(
        (label, *(f"{100 * by_tier[tier]:.1f}" if tier in by_tier else "–" for tier in tiers))
        for label, by_tier in means.items()
        if by_tier
    )
    head = ("method", *(f"width {tier:g}" for tier in tiers))
    return Table("Final test accuracy (%) of the sub-model of every tier, mean over seeds.", head, rows)


def audit_tables(report: AuditReport) -> list[Table]:
    """Return the four correlations of every run, of all seeds together, their spread, and the tiers."""
    tables = [
        Table(
            "Correlation, permutation p-value and 95 % interval.",
            ("run", *HEADINGS),
            tuple(
                (_name(run), *(" ".join(cell_parts(run.table[c])) for c in COLUMNS)) for run in report.runs
            ),
        )
    ]
    repeated = report.repeated()
    if repeated:
        together = tuple(
            (
                label,
                *(" ".join(cell_parts(pooled.table[c])) for c in COLUMNS),
                detectable_text(pooled.table[DATA]),
            )
            for label, pooled in report.pooled.items()
        )
        caption = (
            "All seeds together: mean correlation, permutation p-value, 95 % t interval over runs, bootstrap "
            "interval over clients and runs. Detectable r: of r(H, TV | capacity)."
        )
        tables.append(Table(caption, ("method", *HEADINGS, "detectable r"), together))
        rows = tuple((label, *(_spread(columns[c]) for c in COLUMNS)) for label, columns in repeated.items())
        tables.append(Table("Over seeds: mean ± sd, smallest to largest.", ("method", *HEADINGS), rows))
    tiers = sorted({row.tier for run in report.runs for row in run.table.within_tier})
    if len(tiers) <= MAX_TIERS:
        head = ("run", *(f"capacity {tier:g}" for tier in tiers))
        rows = tuple((_name(run), *_within(run, tiers)) for run in report.runs)
        tables.append(Table("r(H, TV) among the clients of each capacity.", head, rows))
    return tables


def settings_tables(groups: Sequence[RunGroup]) -> list[Table]:
    """Return the settings that all experiments share, and those in which they differ."""
    configs = {
        group.label: {k: v for k, v in group.runs[0].config.items() if k not in NOT_A_SETTING}
        for group in groups
    }
    return _shared_and_differing(configs, "Settings", "setting")


def provenance_tables(groups: Sequence[RunGroup], page: Path) -> list[Table]:
    """Return where every run lies, how it was started, and on what machine and versions."""
    runs = {f"{group.label} s{run.seed}": run for group in groups for run in group.runs}
    head = ("run", "state", "folder", "started", "command")
    rows = tuple(
        (
            name,
            _state(run),
            os.path.relpath(run.path, page.parent),
            _text(run.environment.get("time")),
            _text(run.environment.get("command")),
        )
        for name, run in runs.items()
    )
    machines = {
        name: {k: v for k, v in run.environment.items() if k not in ("time", "command")}
        for name, run in runs.items()
    }
    return [Table("Runs.", head, rows), *_shared_and_differing(machines, "Code and machine", "item")]


def _shared_and_differing(items: Mapping[str, Mapping[str, Any]], what: str, word: str) -> list[Table]:
    flat = {label: flatten(one) for label, one in items.items()}
    keys = list(dict.fromkeys(key for one in flat.values() for key in one))
    told = {key for one in differences(list(items.values())) for key in one}
    first = next(iter(flat.values()))
    shared = tuple((key, _text(first[key])) for key in keys if key not in told)
    differing = tuple((key, *(_text(one.get(key)) for one in flat.values())) for key in keys if key in told)
    tables = [Table(f"{what}: the same in all runs.", (word, "value"), shared)] if shared else []
    if differing:
        tables.append(Table(f"{what}: what differs.", (word, *flat), differing))
    return tables


def _state(run: RunResult) -> str:
    if run.complete:
        return "finished"
    planned = run.config.get("training", {}).get("rounds")
    return f"unfinished: {len(run.rounds)} of {_text(planned)} rounds"


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, list) and len(value) > 8:
        return f"{value[0]} … {value[-1]} ({len(value)} values)"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _name(run: RunAudit) -> str:
    return f"{run.run} s{run.seed}"


def _spread(spread: Spread) -> str:
    if spread.mean is None:
        return "–"
    sd = "" if spread.sd is None else f" ± {spread.sd:.2f}"
    return f"{spread.mean:+.2f}{sd} ({spread.min:+.2f} to {spread.max:+.2f}, n = {spread.count})"


def _within(run: RunAudit, tiers: Sequence[float]) -> list[str]:
    by_tier = {row.tier: row for row in run.table.within_tier}
    cells = []
    for tier in tiers:
        row = by_tier.get(tier)
        if row is None:
            cells.append("no client")
        elif row.r_estimate_divergence is None:
            cells.append(f"– ({row.reason})")
        else:
            cells.append(f"{row.r_estimate_divergence:+.2f} (n = {row.clients})")
    return cells
