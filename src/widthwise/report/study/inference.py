"""Tables of inference: claims with verdicts, paired comparisons, and correlations of the estimates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from widthwise.audit.table import COLUMNS
from widthwise.report.study.cells import (
    NOT_PRINTED,
    NOTHING,
    OTHER_DATA,
    interval_record,
    interval_text,
    number,
    signed,
    state_text,
)
from widthwise.report.study.claims import RULE, Finding
from widthwise.report.study.contrasts import LINK_WORDS, Contrast, Link, links
from widthwise.report.study.results import StudyResults, Task
from widthwise.report.study.statistics import Estimate, estimate, pooled
from widthwise.report.study.table import StudyTable

FULL, ADAPTIVE = "fedavg", "hasfl"
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
        verdict = f"{one.verdict} ({one.reason})" if one.reason else one.verdict
        rows.append(
            (one.name, one.sentence, one.statistic, str(one.region), one.task, verdict, value, n, paper)
        )
        long.append(
            {
                "claim": one.name,
                "sentence": one.sentence,
                "task": one.task,
                "statistic": one.statistic,
                "region_low": _end(one.region.low),
                "region_high": _end(one.region.high),
                **interval_record(one.found),
                "paper": one.paper,
                "verdict": one.verdict,
                "reason": one.reason,
                "runs": " ".join(one.runs),
            }
        )
    head = ("no.", "claim", "statistic", "claimed", "task", "verdict", "ours [95 %]", "seeds", "paper")
    return StudyTable("claims", "Verdicts", RULE, head, tuple(rows), tuple(long), row_heads=4)


def _end(value: float) -> float | None:
    return value if math.isfinite(value) else None


def comparisons_table(results: StudyResults) -> StudyTable:
    """Return paired differences in final accuracy, as ``comparisons`` lists them."""
    rows: list[tuple[str, ...]] = []
    long: list[dict[str, Any]] = []
    for contrast in comparisons(results.labels()):
        shown: list[tuple[str, Sequence[Task], Mapping[int, float]]] = [
            (task.title, [task], contrast.ours(results, task)) for task in results.tasks
        ]
        full = [(tasks[0], by_seed) for _, tasks, by_seed in shown if by_seed]
        if len(full) > 1:
            shown.append((_POOLED, [task for task, _ in full], pooled([by_seed for _, by_seed in full])))
        for title, tasks, by_seed in shown:
            if not by_seed:
                continue
            found = estimate(list(by_seed.values()))
            name = f"{contrast.first} − {contrast.others[0]}"
            seeds = ", ".join(f"{signed(d, 1)} (s{seed})" for seed, d in by_seed.items())
            label = title if title != _POOLED else f"{_POOLED} ({len(tasks)})"
            rows.append((name, label, interval_text(found, 1), str(len(by_seed)), seeds))
            long += _paired_records(results, contrast, title, tasks, by_seed, found)
    caption = (
        "Differences in final accuracy, in points, between runs of the same seed, which share partition, "
        "capacities and cohorts: mean and 95 % t interval over seeds (3 seeds: 2 degrees of freedom). All "
        "tasks: the mean over tasks of each seed first, then the interval over seeds, because runs of one "
        "seed share their capacities."
    )
    head = ("difference", "task", "mean [95 %]", "seeds", "each seed")
    return StudyTable(
        "comparisons", "Paired comparisons", caption, head, tuple(rows), tuple(long), row_heads=2
    )


def comparisons(labels: Sequence[str]) -> list[Contrast]:
    """Return which methods are compared: the adaptive one with each other one, each with the full model."""
    adaptive = [Contrast(ADAPTIVE, (label,)) for label in labels if label not in (ADAPTIVE, FULL)]
    full = [Contrast(label, (FULL,)) for label in labels if label != FULL]
    return (adaptive if ADAPTIVE in labels else []) + (full if FULL in labels else [])


def _paired_records(
    results: StudyResults,
    contrast: Contrast,
    title: str,
    tasks: Sequence[Task],
    by_seed: Mapping[int, float],
    found: Estimate | None,
) -> Iterator[dict[str, Any]]:
    key = {"first": contrast.first, "second": contrast.others[0], "task": title}
    cells = [cell for task in tasks for label in contrast.labels for cell in results.of(task.label, label)]

    def paths(*seeds: int) -> str:
        return " ".join(cell.path for cell in cells if cell.done and cell.seed in seeds)

    yield {**key, "seed": "mean", **interval_record(found), "runs": paths(*by_seed)}
    for seed, difference in by_seed.items():
        yield {**key, "seed": seed, "value": difference, "runs": paths(seed)}


def correlations_table(results: StudyResults) -> StudyTable | None:
    """Return the paper's Table 5: correlations of the final estimates, for every seed and over seeds."""
    if results.expected is None or ADAPTIVE not in results.labels():
        return None
    rows, long = [], []
    for task in results.tasks:
        printed = results.expected.correlations.get(task.paper or "", {})
        for cell in results.of(task.label, ADAPTIVE):
            paper = dict(zip(COLUMNS, printed.get(cell.seed, ()), strict=False))
            ours = links(cell.run) if cell.done and cell.run else {}
            cells: list[str] = []
            for column in COLUMNS:
                p, r = paper.get(column), ours.get(column)
                formed = p is not None and r is not None and not task.stand_in
                difference = r - p if formed and r is not None and p is not None else None
                cells += [
                    NOT_PRINTED if p is None else signed(p, 2),
                    (cell.state if not cell.done else NOTHING) if r is None else signed(r, 2),
                    _difference(p, r, difference),
                ]
                key = {
                    "table": "table-5",
                    "task": task.title,
                    "method": ADAPTIVE,
                    "quantity": LINK_WORDS[column],
                }
                long.append(
                    {
                        **key,
                        "seed": cell.seed,
                        "value": r,
                        "paper": p,
                        "difference": difference,
                        "state": cell.state,
                        "runs": cell.path,
                    }
                )
            rows.append((f"{task.title}, s{cell.seed}", *cells))
    caption = (
        "Final smoothed estimates H of HAS-FL against label divergence TV and capacity; '| capacity': "
        "capacity removed linearly. The paper's seeds drew other partitions than ours: a row's difference "
        "compares two draws."
    )
    head = ("run", *(("paper", "ours", "difference") * len(COLUMNS)))
    groups = (("", 1), *((LINK_WORDS[column], 3) for column in COLUMNS))
    return StudyTable(
        "table-5",
        "Table 5: What the estimates go along with",
        caption,
        head,
        tuple(rows),
        tuple(long),
        groups,
    )


def _difference(paper: float | None, ours: float | None, difference: float | None) -> str:
    if difference is not None:
        return signed(difference, 2)
    return NOTHING if paper is None or ours is None else OTHER_DATA


def links_table(results: StudyResults) -> StudyTable:
    """Return the four correlations of every method, mean over seeds with its interval."""
    rows, long = [], []
    for task in results.tasks:
        for label in task.methods:
            texts = []
            for column in COLUMNS:
                by_seed = Link(label, column).ours(results, task)
                found = estimate(list(by_seed.values()))
                done = bool(results.runs(task.label, label))
                absent = "undefined" if done else state_text(results, task.label, label)
                texts.append(interval_text(found, 2) if found else absent)
                key = {
                    "table": "correlations",
                    "task": task.title,
                    "method": label,
                    "quantity": LINK_WORDS[column],
                }
                paths = [cell.path for cell in results.of(task.label, label) if cell.seed in by_seed]
                long.append({**key, **interval_record(found), "runs": " ".join(paths)})
            rows.append((task.title, label, *texts))
    caption = (
        "Mean over seeds of the correlation over clients, and 95 % t interval over seeds. Undefined: what is "
        "correlated is the same for all clients, or for all of equal capacity."
    )
    head = ("task", "method", *(LINK_WORDS[column] for column in COLUMNS))
    return StudyTable(
        "correlations", "Correlations of every method", caption, head, tuple(rows), tuple(long), row_heads=2
    )
