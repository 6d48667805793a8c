"""One self-contained HTML page about stored runs, and its figures as PDF beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from widthwise.audit import AuditReport, RunGroup, audit, group_runs
from widthwise.audit.confound import METHOD
from widthwise.core.errors import InputError
from widthwise.engine.runs import RunResult, load_run
from widthwise.report.clients import estimate_plot, widths_plot
from widthwise.report.comparison import comparison_plots, finished
from widthwise.report.html import render, write_page, writing
from widthwise.report.style import Plot, looks
from widthwise.report.tables import (
    audit_tables,
    provenance_tables,
    results_table,
    settings_tables,
    tier_table,
)


@dataclass(frozen=True)
class ClientSection:
    """The client figures of one experiment, drawn from one of its runs."""

    label: str
    seed: int
    sentence: str
    plots: tuple[Plot, ...]


def build_report(runs: Sequence[Path | str], out: Path | str) -> Path:
    """Write the page about some runs. Nothing is trained; unfinished runs are shown as far as they got.

    Args:
        runs: Run folders.
        out: Path of the page. Figures go to ``figures/`` beside it.

    Returns:
        The path of the page.

    Raises:
        InputError: if there are no runs, or the page cannot be written.
        CheckpointError: if a folder is not a run, or is damaged.
    """
    if not runs:
        raise InputError("the list of runs is empty, but a report needs at least one. Name a run folder.")
    page = Path(out)
    results = [load_run(run) for run in runs]
    groups = group_runs(results)
    figures = page.parent / "figures"
    with writing(page):
        figures.mkdir(parents=True, exist_ok=True)
    complete = [run for run in results if run.complete]
    report = audit(complete) if complete else None
    plots = comparison_plots(groups, looks([group.label for group in groups]))
    sections = _client_sections(groups, complete, report)
    html = render(
        "page.html.j2",
        title=_title(groups, results),
        lead=_lead(groups, results),
        sentence=report.sentence if report else None,
        results=results_table(groups),
        plots=plots,
        tiers=tier_table(groups),
        sections=sections,
        audit_tables=audit_tables(report) if report else [],
        audit_method=METHOD,
        settings=settings_tables(groups),
        provenance=provenance_tables(groups, page),
    )
    every = [*plots.values(), *(plot for section in sections for plot in section.plots)]
    with writing(page):
        for plot in every:
            plot.save_pdf(figures)
        write_page(page, html)
    return page


def _client_sections(
    groups: Sequence[RunGroup], complete: Sequence[RunResult], report: AuditReport | None
) -> list[ClientSection]:
    audits = {} if report is None else dict(zip(map(id, complete), report.runs, strict=True))
    styles = looks([group.label for group in groups])
    sections = []
    for number, group in enumerate(groups, start=1):
        for run in finished(group)[:1]:
            # Labels come from files: only plain characters may become part of a file's name.
            name, found = f"{number}-{re.sub(r'[^A-Za-z0-9]+', '-', group.label).strip('-')}", audits[id(run)]
            drawn = (widths_plot(run, name, styles[group.label]), estimate_plot(run, name, found))
            plots = tuple(plot for plot in drawn if plot is not None)
            sections.append(ClientSection(group.label, run.seed, found.sentence, plots))
    return sections


def _title(groups: Sequence[RunGroup], runs: Sequence[RunResult]) -> str:
    datasets = sorted({str(run.config.get("task", {}).get("dataset", "")) for run in runs} - {""})
    what = " and ".join(datasets) or "stored runs"
    return f"{groups[0].label} on {what}" if len(groups) == 1 else f"{len(groups)} methods on {what}"


def _lead(groups: Sequence[RunGroup], runs: Sequence[RunResult]) -> str:
    open_runs = sum(not run.complete for run in runs)
    clients = sorted({run.partition["num_clients"] for run in runs if run.partition})
    parts = [
        count_of(len(runs), "run"),
        count_of(len(groups), "method"),
        count_of(len({run.seed for run in runs}), "seed"),
        *(f"{count} clients" for count in clients),
        *([f"{open_runs} unfinished"] if open_runs else []),
    ]
    return " · ".join(parts)


def count_of(count: int, word: str) -> str:
    """Return a number and its noun, in the plural where it takes one."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
