"""Tables of inference: claims with verdicts, paired comparisons, and correlations of the estimates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from widthwise.audit.table import COLUMNS
from widthwise.report.study.cells import (
    NOT_PRINTED,
    NOTHING,
    difference,
    difference_text,
    interval_record,
    interval_text,
    key,
    method_text,
    number,
    of_paper,
    seed_records,
    signed,
    state_text,
    values,
)
from widthwise.report.study.claims import RULE, Finding
from widthwise.report.study.contrasts import LINK_WORDS, R_RANGE, link_values, links
from widthwise.report.study.results import StudyResults, Task
from widthwise.report.study.statistics import estimate, paired, pooled
from widthwise.report.study.table import StudyTable
from widthwise.studies.relations import pairs

_POOLED = "all tasks"


def claims_table(found: Sequence[Finding]) -> StudyTable:
    """Return the claims with statistic, value, interval and verdict."""
    rows, long = [], []
    for one in found:
        write = number if one.counted else signed
        value = interval_text(one.found, one.digits) if one.found else NOTHING
        n = str(one.found.n) if one.found else "0"
        if one.counted and one.found:
            value, n = number(one.found.mean, one.digits), NOTHING
        paper = NOT_PRINTED if one.paper is None else write(one.paper, one.digits)
        if one.stand_in and one.paper is not None:
            paper = f"{', '.join(one.paper_of)}: {paper}"
        verdict = f"{one.verdict} ({one.reason})" if one.reason else one.verdict
        claim = one.claim
        rows.append(
            (claim.name, claim.sentence, one.statistic, str(claim.region), one.task, verdict, value, n, paper)
        )
        long.append(
            {
                "claim": claim.name,
                "sentence": claim.sentence,
                "task": one.task,
                "statistic": one.statistic,
                "region_low": _end(claim.region.low),
                "region_high": _end(claim.region.high),
                **interval_record(one.found),
                "paper": one.paper,
                "paper_task": None if one.paper is None else ", ".join(one.paper_of),
                "verdict": one.verdict,
                "reason": one.reason,
                "runs": " ".join(one.runs),
            }
        )
    head = ("no.", "claim", "statistic", "claimed", "task", "verdict", "ours [95 %]", "seeds", "paper")
    return StudyTable("claims", "Verdicts", RULE, head, tuple(rows), tuple(long), row_heads=4)


def _end(value: float) -> float | None:
    return value if math.isfinite(value) else None


def comparisons_table(results: StudyResults) -> StudyTable | None:
    """Return paired differences in final accuracy, as ``relations.pairs`` lists them; None without a pair."""
    sweep = results.manifest.study.sweep
    of_task = {task.label: pairs(task.configs, task.sources, sweep) for task in results.tasks}
    listed = {pair: what for found in of_task.values() for pair, what in found.items()}
    rows: list[tuple[str, ...]] = []
    long: list[dict[str, Any]] = []
    for (first, second), what in listed.items():
        tasks = [task for task in results.tasks if (first, second) in of_task[task.label]]
        by_task = {task.title: ([task], _differences(results, task, first, second)) for task in tasks}
        full = {title: both for title, both in by_task.items() if both[1]}
        if len(full) > 1:
            some = [task for (task,), _ in full.values()]
            full[_POOLED] = (some, pooled([by_seed for _, by_seed in full.values()]))
        for title, (some, by_seed) in full.items():
            found = estimate(list(by_seed.values()))
            seeds = ", ".join(f"{signed(d, 1)} (s{seed})" for seed, d in by_seed.items())
            shown = f"{_POOLED} ({len(some)})" if title == _POOLED else title
            pair = (f"{first} − {second}", what)
            rows.append((*pair, shown, interval_text(found, 1), str(len(by_seed)), seeds))
            about = {"first": first, "second": second, "pair": what, "task": title}
            cells = [cell for task in some for x in (first, second) for cell in results.of(task.label, x)]
            long += seed_records(about, by_seed, cells)
    if not rows:
        return None
    caption = (
        "Differences in final accuracy, in points, between runs of the same seed, which share partition, "
        "capacities and cohorts: mean and 95 % t interval over n seeds (n - 1 degrees of freedom). All "
        "tasks: the mean over tasks of each seed first, then the interval over seeds, because runs of one "
        "seed share their capacities. Matched runs that did not meet their budget are left out."
    )
    head = ("difference", "pair", "task", "mean [95 %]", "seeds", "each seed")
    return StudyTable(
        "comparisons", "Paired comparisons", caption, head, tuple(rows), tuple(long), row_heads=3
    )


def _differences(results: StudyResults, task: Task, first: str, second: str) -> Mapping[int, float]:
    ours = (values(results.comparable(task.label, label), "final") for label in (first, second))
    return paired(*ours)


def correlations_table(results: StudyResults) -> StudyTable | None:
    """Return the paper's Table 5: correlations of the final estimates, for every seed and over seeds."""
    if results.expected is None:
        return None
    rows: list[tuple[str, ...]] = []
    long: list[dict[str, Any]] = []
    for method, by_task in results.expected.correlations.items():
        for task in results.tasks:
            for label in task.known[method]:
                _table_5_rows(results, task, label, by_task.get(task.paper or "", {}), rows, long)
    if not rows:
        return None
    caption = (
        "Final smoothed estimates H of HAS-FL against label divergence TV and capacity; '| capacity': "
        "capacity removed linearly. The paper's seeds drew other partitions than ours: a row's difference "
        "compares two draws. Where our data set is not the paper's, its name stands before its number."
    )
    head = ("run", *(("paper", "ours", "difference") * len(COLUMNS)))
    groups = (("", 1), *((LINK_WORDS[column], 3) for column in COLUMNS))
    title = "Table 5: What the estimates go along with"
    return StudyTable("table-5", title, caption, head, tuple(rows), tuple(long), groups)


def _table_5_rows(
    results: StudyResults,
    task: Task,
    label: str,
    printed: Mapping[int, Sequence[float]],
    rows: list[tuple[str, ...]],
    long: list[dict[str, Any]],
) -> None:
    """Add a row for every planned seed of a method, and its records."""
    for cell in results.of(task.label, label):
        paper = dict(zip(COLUMNS, printed.get(cell.seed, ()), strict=False))
        ours = links(cell.run) if cell.done and cell.run else {}
        cells: list[str] = []
        for column in COLUMNS:
            p, r = paper.get(column), ours.get(column)
            cells += [
                NOT_PRINTED if p is None else of_paper(task, signed(p, 2)),
                (cell.state if not cell.done else NOTHING) if r is None else signed(r, 2),
                difference_text(task, r, p, 2),
            ]
            about = {**key("table-5", task, label, LINK_WORDS[column]), "seed": cell.seed, "value": r}
            about |= {"paper": p, "paper_task": task.paper if p is not None else None}
            long.append(
                {**about, "difference": difference(task, r, p), "state": cell.state, "runs": cell.path}
            )
        rows.append((f"{task.title}, s{cell.seed}", *cells))


def links_table(results: StudyResults) -> StudyTable:
    """Return the four correlations of every method, mean over seeds with its interval."""
    rows, long = [], []
    for task in results.tasks:
        for label in task.methods:
            runs = results.runs(task.label, label)
            absent = "undefined" if runs else state_text(results, task.label, label)
            texts = []
            for column in COLUMNS:
                by_seed = link_values(runs, column)
                found = estimate(list(by_seed.values()), R_RANGE)
                texts.append(interval_text(found, 2) if found else absent)
                about = key("correlations", task, label, LINK_WORDS[column])
                long.append(seed_records(about, by_seed, results.of(task.label, label), R_RANGE)[0])
            rows.append((task.title, method_text(results, task.label, label), *texts))
    caption = (
        "Mean over seeds of the correlation over clients, and 95 % t interval over seeds, which ends at −1 "
        "and 1. Undefined: what is correlated is the same for all clients, or for all of equal capacity."
    )
    head = ("task", "method", *(LINK_WORDS[column] for column in COLUMNS))
    return StudyTable(
        "correlations", "Correlations of every method", caption, head, tuple(rows), tuple(long), row_heads=2
    )
