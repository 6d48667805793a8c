"""What a study says of its paper's claims: values, intervals, and verdicts by one rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from widthwise.report.study.contrasts import limits, ours, printed, words
from widthwise.report.study.results import StudyResults, Task
from widthwise.report.study.statistics import Estimate, estimate, pooled
from widthwise.studies.claims import Claim, Contrast, Link, Region, Share
from widthwise.studies.costs import paper_costs

Verdict = Literal["supported", "not supported", "undecided at this scale", "not tested"]
VERDICTS: tuple[Verdict, ...] = ("supported", "not supported", "undecided at this scale", "not tested")
RULE = (
    "Every claim names the region in which its statistic must lie. It is supported if the whole 95 % "
    "interval lies in the region, not supported if the whole interval lies outside, and undecided at this "
    "scale otherwise, which includes a single seed. A claim whose runs are missing is not tested. Intervals"
    " are t intervals over seeds: with three seeds they have 2 degrees of freedom and reach 2.48 standard "
    "deviations to each side; those of correlations end at −1 and 1. Rows over several tasks average the "
    "tasks within each seed first. Controls that could not spend what they were to match are left out. Where"
    " our data set is not the paper's, the paper's number bears the name of its own. No correction for the "
    "number of claims is made."
)
OVER_TASKS = "these tasks together"
_COLUMN: Mapping[str, tuple[str, int]] = {"params": ("parameters", 0), "macs": ("MACs", 1)}


@dataclass(frozen=True)
class Finding:
    """What the study says of one statistic of a claim on one task, or over all of its tasks.

    Attributes:
        claim: The claim.
        task: Title of the task.
        statistic: What was computed, in words.
        found: Our value with its interval, None where runs are missing.
        paper: The same of the paper's printed numbers, None where it prints none.
        verdict: By ``RULE``.
        digits: Digits to print.
        paper_of: The paper's tasks that ``paper`` is about.
        stand_in: Whether any of ours is on another data set.
        reason: Why there is no verdict, or what was left out of it.
        runs: Folders that it was computed from.
        counted: Whether it is an exact count rather than an estimate over seeds.
    """

    claim: Claim
    task: str
    statistic: str
    found: Estimate | None
    paper: float | None
    verdict: Verdict
    digits: int = 1
    paper_of: tuple[str, ...] = ()
    stand_in: bool = False
    reason: str = ""
    runs: tuple[str, ...] = ()
    counted: bool = False


def judge(found: Estimate | None, region: Region) -> Verdict:
    """Return the verdict on a claim from the interval of its statistic, by ``RULE``.

    Example:
        >>> judge(estimate([1.0, 2.0, 3.0, 2.0]), Region(low=0))
        'supported'
    """
    if found is None:
        return "not tested"
    if found.low is None or found.high is None:
        return "undecided at this scale"
    if region.low < found.low and found.high < region.high:
        return "supported"
    if found.high <= region.low or found.low >= region.high:
        return "not supported"
    return "undecided at this scale"


def findings(results: StudyResults) -> list[Finding]:
    """Return what the study says of every claim of its paper, in the order of the claims."""
    claims = results.expected.claims if results.expected else ()
    return [finding for claim in claims for finding in _of_claim(results, claim)]


def outcomes(found: Sequence[Finding]) -> dict[str, list[str]]:
    """Return verdict -> the claims that have it, as "short (number)", with the tasks where these differ."""
    tasks: dict[str, dict[Verdict, list[str]]] = {}
    for one in found:
        if one.task != OVER_TASKS:
            by_verdict = tasks.setdefault(f"{one.claim.short} ({one.claim.name})", {})
            by_verdict.setdefault(one.verdict, []).append(one.task)
    told: dict[str, list[str]] = {verdict: [] for verdict in VERDICTS}
    for name, by_verdict in tasks.items():
        for verdict, some in by_verdict.items():
            where = f" on {', '.join(dict.fromkeys(some))}" if len(by_verdict) > 1 else ""
            told[verdict].append(name + where)
    return {verdict: names for verdict, names in told.items() if names}


def _of_claim(results: StudyResults, claim: Claim) -> Iterator[Finding]:
    for statistic in claim.statistics:
        if isinstance(statistic, Share):
            yield from _counted(results, claim, statistic)
            continue
        tasks = list(results.paper_tasks(claim.tasks))
        by_task = [ours(statistic, results, task) for task in tasks]
        for task, by_seed in zip(tasks, by_task, strict=True):
            yield _finding(results, claim, statistic, [task], by_seed)
        if len(tasks) > 1 and all(by_task):
            yield _finding(results, claim, statistic, tasks, pooled(by_task))


def _finding(
    results: StudyResults,
    claim: Claim,
    statistic: Contrast | Link,
    tasks: Sequence[Task],
    by_seed: Mapping[int, float],
) -> Finding:
    assert results.expected is not None
    found = estimate(list(by_seed.values()), limits(statistic))
    paper_of = tuple(dict.fromkeys(task.paper for task in tasks if task.paper))
    known = [printed(statistic, results.expected, name) for name in paper_of]
    numbers = [number for number in known if number is not None]
    cells = [
        cell
        for task in tasks
        for method in statistic.methods
        for cell in results.of(task.label, task.label_of(method) or method)
    ]
    reasons = [f"{cell.path} left out: it did not meet its budget" for cell in cells if cell.unmet]
    if found is None:
        reasons += [_lacking(results, statistic, tasks)]
    elif found.low is None:
        reasons += ["one seed gives no interval"]
    return Finding(
        claim,
        tasks[0].title if len(tasks) == 1 else OVER_TASKS,
        words(statistic),
        found,
        float(np.mean(numbers)) if len(numbers) == len(known) else None,
        judge(found, claim.region),
        2 if isinstance(statistic, Link) else 1,
        paper_of,
        any(task.stand_in for task in tasks),
        "; ".join(reasons),
        tuple(sorted(cell.path for cell in cells if cell.done and cell.seed in by_seed)),
    )


def _lacking(results: StudyResults, statistic: Contrast | Link, tasks: Sequence[Task]) -> str:
    """Return why there is no value."""
    told = []
    for method in statistic.methods:
        several = [task.known.get(method, ()) for task in tasks if task.label_of(method) is None]
        if any(several):
            told.append(f"{method} may be {' or '.join(dict.fromkeys(x for some in several for x in some))}")
        elif not any(results.runs(task.label, task.label_of(method) or "") for task in tasks):
            told.append(f"no finished run of {method}")
    return "; ".join(told) or "undefined, or no seed in common"


def _counted(results: StudyResults, claim: Claim, share: Share) -> Iterator[Finding]:
    """Yield a claim on cost, which is counted and not estimated: its interval is a point."""
    assert results.expected is not None
    what, column = _COLUMN[share.cost]
    for model in (model for model in results.expected.costs if model.title in claim.tasks):
        counts = {cost.width: getattr(cost, share.cost) for cost in paper_costs(model)}
        percent = 100 * counts[share.width] / counts[1.0]
        exact = Estimate(percent, None, 1, percent, percent)
        yield Finding(
            claim,
            model.title,
            f"{what} at width {share.width:g} in % of width 1 (counted exactly)",
            exact,
            100 * model.rows[share.width][column] / model.rows[1.0][column],
            judge(exact, claim.region),
            counted=True,
        )
