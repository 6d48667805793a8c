"""The statistics of claims: their value for each seed of ours, their value in the paper, and their words."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from widthwise.audit import clients_of, correlations_of
from widthwise.audit.confound import HEADINGS
from widthwise.audit.table import COLUMNS
from widthwise.engine.runs import RunResult
from widthwise.report.study.cells import values
from widthwise.report.study.results import StudyResults, Task
from widthwise.report.study.statistics import paired, pooled
from widthwise.studies.claims import Contrast, Link, Quantity
from widthwise.studies.expected import Expected

WORDS: Mapping[Quantity, str] = {
    "best": "best accuracy",
    "final": "final accuracy",
    "peak_to_final": "final minus best accuracy",
    "width": "average width",
}
LINK_WORDS = dict(zip(COLUMNS, HEADINGS, strict=True))
#: No correlation, and so no end of an interval of one, lies outside.
R_RANGE = (-1.0, 1.0)


def words(statistic: Contrast | Link) -> str:
    """Return what is computed; methods bear the names of ``Expected.methods``."""
    if isinstance(statistic, Link):
        what = LINK_WORDS[statistic.correlation]
        return f"{what} over the clients of a run of {statistic.of}, mean over seeds"
    what = f"{WORDS[statistic.quantity]} of {statistic.of}"
    if len(statistic.minus) > 1:
        return f"{what} minus the mean of {', '.join(statistic.minus)}, paired by seed"
    return f"{what} minus {statistic.minus[0]}, paired by seed" if statistic.minus else what


def limits(statistic: Contrast | Link) -> tuple[float, float]:
    """Return the least and the largest value that the statistic can have."""
    return R_RANGE if isinstance(statistic, Link) else (-math.inf, math.inf)


def ours(statistic: Contrast | Link, results: StudyResults, task: Task) -> dict[int, float]:
    """Return the value of every seed in which it is defined, or none where a method is not one label here."""
    labels = [task.label_of(method) for method in statistic.methods]
    runs = [results.comparable(task.label, label) for label in labels if label is not None]
    if len(runs) < len(labels):
        return {}
    if isinstance(statistic, Link):
        return link_values(runs[0], statistic.correlation)
    first, *others = (values(some, statistic.quantity) for some in runs)
    return paired(first, pooled(others)) if others else first


def printed(statistic: Contrast | Link, expected: Expected, task: str) -> float | None:
    """Return the same of the paper's printed means, or None where it does not print them all."""
    if isinstance(statistic, Link):
        seeds = expected.correlations.get(statistic.of, {}).get(task, {})
        column = COLUMNS.index(statistic.correlation)
        return float(np.mean([row[column] for row in seeds.values()])) if seeds else None
    rows = [expected.result(task, method) for method in statistic.methods]
    means = [row.mean(statistic.quantity) for row in rows if row is not None]
    if len(means) < len(rows):
        return None
    return means[0] - (float(np.mean(means[1:])) if statistic.minus else 0.0)


def link_values(runs: Mapping[int, RunResult], column: str) -> dict[int, float]:
    """Return one of the correlations by seed, for the runs in which it is defined."""
    found = {seed: links(run)[column] for seed, run in runs.items()}
    return {seed: r for seed, r in found.items() if r is not None}


def links(run: RunResult) -> dict[str, float | None]:
    """Return the four correlations of a finished run, as its audit has them; None where one is undefined.

    H: final smoothed estimate (a run may end before the first one is due). TV: label divergence. ``|
    capacity``: capacity removed linearly from both.
    Source: Moayedikia and Troncoso Lora (2026), Table 5.
    """
    return correlations_of(clients_of(run))
