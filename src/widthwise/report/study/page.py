"""The page about a study, with its tables and figures as files beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from widthwise.audit import RunGroup
from widthwise.report.html import render, write_page, writing
from widthwise.report.study.claims import Finding, findings, outcomes
from widthwise.report.study.figures import study_figures
from widthwise.report.study.inference import (
    claims_table,
    comparisons_table,
    correlations_table,
    links_table,
)
from widthwise.report.study.pooled_audit import pooled_audit_table
from widthwise.report.study.provenance import headline_csv, open_runs_table, runs_table, sessions_table
from widthwise.report.study.results import StudyResults, read_study
from widthwise.report.study.table import StudyTable
from widthwise.report.study.tables import cost_tables, headline_table, result_tables, tier_table
from widthwise.report.tables import Table, settings_tables

#: Sections of the page and what the list of contents calls them.
CONTENTS = (
    ("claims-of-the-paper", "Claims"),
    ("results", "Results"),
    ("paired", "Comparisons"),
    ("paper-tables", "The paper's tables"),
    ("figures", "Over rounds"),
    ("sub-models", "Sub-models"),
    ("estimates", "Estimates"),
    ("cost", "Costs"),
    ("provenance", "Provenance"),
    ("settings", "Settings"),
)
#: Sections that are left out where these tables are missing.
EMPTY = {"claims-of-the-paper": "claims", "paired": "comparisons", "paper-tables": "paper"}


def build_study_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write the report of a study from what its folder holds; nothing is trained.

    The page, ``figures/*.pdf`` and ``tables/*.csv`` and ``*.tex`` are the same to the byte as long as the
    runs and the manifest are. Every row of a CSV file names the run folders that it was computed from. Models
    are traced for the table of costs, which takes some seconds for large ones.

    Args:
        folder: The study's folder, with ``study.json`` and the run folders that there are. Of a run,
            all files but its checkpoint are needed.
        out: Path of the page; by default ``report.html`` in the study's folder.

    Returns:
        The path of the page.

    Raises:
        CheckpointError: if the folder holds no study, or its manifest is damaged.
        ConfigError: if the manifest names a paper or a part that is not known.
        InputError: if the page cannot be written.
    """
    results = read_study(Path(folder))
    page = Path(out) if out else Path(folder) / "report.html"
    found = findings(results)
    groups = _tables(results, found)
    figures = study_figures(results)
    study = results.manifest.study
    html = render(
        "study.html.j2",
        title=study.title or f"Study {results.manifest.name}",
        lead=_lead(results),
        outcomes=outcomes(found),
        note=study.note,
        tasks=[task for task in results.tasks if task.note],
        source=results.expected.source if results.expected else None,
        contents=[(place, text) for place, text in CONTENTS if place not in EMPTY or groups[EMPTY[place]]],
        verdict_words={"supported": "yes", "not supported": "no"},
        groups=groups,
        figures=figures,
        settings=_settings(results),
    )
    with writing(page):
        tables, drawings = page.parent / "tables", page.parent / "figures"
        for place in (tables, drawings):
            place.mkdir(parents=True, exist_ok=True)
        for table in (table for group in groups.values() for table in group):
            table.save(tables)
        (tables / "headline.csv").write_text(headline_csv(results), encoding="utf-8")
        plots = [plot for some in figures.values() for plot in some]
        for plot in plots:
            plot.save_pdf(drawings)
        names = [table.name for group in groups.values() for table in group]
        kept = {"headline", *names, *(plot.name for plot in plots)}
        for stale in (*tables.glob("*.csv"), *tables.glob("*.tex"), *drawings.glob("*.pdf")):
            if stale.stem not in kept:  # of an earlier report, when other runs were there
                stale.unlink()
        write_page(page, html)
    return page


def _tables(results: StudyResults, found: Sequence[Finding]) -> dict[str, list[StudyTable]]:
    """Return the tables of every section of the page."""
    tiers = tier_table(results)
    pairs = comparisons_table(results)
    provenance = (sessions_table(results), open_runs_table(results), runs_table(results))
    return {
        "claims": [claims_table(found)] if found else [],
        "results": [headline_table(results)],
        "comparisons": [pairs] if pairs is not None else [],
        "paper": result_tables(results),
        "costs": cost_tables(results),
        "correlations": [
            table
            for table in (correlations_table(results), pooled_audit_table(results), links_table(results))
            if table is not None
        ],
        "provenance": [table for table in provenance if table is not None],
        "tiers": [tiers] if tiers is not None else [],
    }


def _lead(results: StudyResults) -> str:
    done = sum(cell.done for cell in results.cells)
    tasks, seeds = len(results.tasks), {cell.seed for cell in results.cells}
    rounds = sorted(
        {cell.run.result["rounds"] for cell in results.cells if cell.done and cell.run and cell.run.result}
    )
    hours = sum(session["seconds"] for session in results.manifest.sessions) / 3600
    profile = [f"profile {results.manifest.profile}"] if results.manifest.profile else []
    parts = [
        f"{done} of {len(results.cells)} planned runs finished",
        f"{tasks} tasks" if tasks > 1 else results.tasks[0].title,
        f"{len(results.labels())} methods",
        f"seeds {', '.join(map(str, sorted(seeds)))}",
        *profile,
        *([f"{' or '.join(map(str, rounds))} rounds"] if rounds else []),
        *([f"{hours:.1f} hours"] if results.manifest.sessions else []),
    ]
    return " · ".join(parts)


def _settings(results: StudyResults) -> dict[str, list[Table]]:
    """Return for each task the settings that its methods share and those in which they differ."""
    found = {}
    for task in results.tasks:
        runs = {label: list(results.runs(task.label, label).values()) for label in task.methods}
        groups = [RunGroup(label, tuple(some)) for label, some in runs.items() if some]
        if groups:
            found[task.title] = settings_tables(groups)
    return found
