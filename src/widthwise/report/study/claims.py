"""A paper's claims, each as a region of a statistic, and verdicts by one rule.

The regions and margins below were fixed before the results of the study ``paper`` were looked at; smaller
trials of the same methods had been seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from widthwise.report.study.contrasts import Contrast, Link, Statistic
from widthwise.report.study.results import StudyResults, Task
from widthwise.report.study.statistics import Estimate, estimate, pooled
from widthwise.studies.costs import paper_costs

Verdict = Literal["supported", "not supported", "undecided at this scale", "not tested"]
MIXED = "different between tasks"
VERDICTS: tuple[Verdict, ...] = ("supported", "not supported", "undecided at this scale", "not tested")
RULE = (
    "Every claim names the region in which its statistic must lie. It is supported if the whole 95 % "
    "interval lies in the region, not supported if the whole interval lies outside, and undecided at this "
    "scale otherwise, which includes a single seed. A claim whose runs are missing is not tested. Intervals"
    " are t intervals over seeds: with three seeds they have 2 degrees of freedom and reach 2.48 standard "
    "deviations to each side. Rows over several tasks average the tasks within each seed first. No "
    "correction for the number of claims is made."
)
IMAGES, TEXT = ("CIFAR-10", "EMNIST"), ("Shakespeare",)
ALL = IMAGES + TEXT
OVER_TASKS = "these tasks together"
SUB_MODELS = ("heterofl", "hasfl", "random-budget", "fjord")


@dataclass(frozen=True)
class Region:
    """The values that a claim allows: between ``low`` and ``high``, neither included."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        low, high = (f"{end:g}".replace("-", "−") for end in (self.low, self.high))
        if math.isinf(self.low):
            return f"< {high}"
        if math.isinf(self.high):
            return f"> {low}"
        return f"within ±{high}" if self.low == -self.high else f"{low} to {high}"


@dataclass(frozen=True)
class Claim:
    """A claim.

    Attributes:
        name: Short identity, grouped by the paper's conclusions.
        short: The claim in a few words.
        sentence: What is claimed.
        statistic: What decides, in points of accuracy or as a correlation.
        region: Where it must lie.
        tasks: The paper's tasks that it is about.
    """

    name: str
    short: str
    sentence: str
    statistic: Statistic
    region: Region
    tasks: tuple[str, ...]


CLAIMS = (
    Claim(
        "1a",
        "divergence falls with capacity",
        "Update divergence measures capacity: it falls with the clients' capacity.",
        Link("hasfl", "r_estimate_capacity"),
        Region(high=0),
        ALL,
    ),
    Claim(
        "1b",
        "no data signal is left at fixed capacity",
        "Once capacity is controlled for, no data signal remains: no positive link of medium size, 0.3.",
        Link("hasfl", "r_estimate_divergence_given_capacity"),
        Region(high=0.3),
        ALL,
    ),
    Claim(
        "1c",
        "no strong link with capacity at full width",
        "Our control: where all clients train the full model, the divergence has no strong link (0.5) with "
        "capacity.",
        Link("fedavg", "r_estimate_capacity"),
        Region(-0.5, 0.5),
        ALL,
    ),
    Claim(
        "1d",
        "allocation does not track the data",
        "The allocation does not track the data: no link of medium size (0.3) given capacity.",
        Link("hasfl", "r_width_divergence_given_capacity"),
        Region(-0.3, 0.3),
        ALL,
    ),
    Claim(
        "2a",
        "the guarantee raises final accuracy",
        "The coverage guarantee raises final accuracy.",
        Contrast("hasfl", ("hasfl-no-guarantee",)),
        Region(low=0),
        IMAGES,
    ),
    Claim(
        "2b",
        "Uniform decays on images",
        "Uniform, which never trains the outer half, decays from its peak: by 5 points or more, when "
        "covered methods lose at most 4.4 in the paper.",
        Contrast("uniform", quantity="peak_to_final"),
        Region(high=-5),
        IMAGES,
    ),
    Claim(
        "2c",
        "Uniform does not decay on the LSTM",
        "On the LSTM, whose output rows everybody trains, Uniform does not decay: by less than 5 points.",
        Contrast("uniform", quantity="peak_to_final"),
        Region(low=-5),
        TEXT,
    ),
    Claim(
        "2d",
        "the guarantee prevents decay",
        "Without the guarantee the decay from peak to final is larger.",
        Contrast("hasfl-no-guarantee", ("hasfl",), "peak_to_final"),
        Region(high=0),
        IMAGES,
    ),
    Claim(
        "3a",
        "random allocation at a matched budget is as good",
        "At a matched budget random allocation equals adaptive allocation: within 2 points.",
        Contrast("hasfl", ("random-budget",)),
        Region(-2, 2),
        IMAGES,
    ),
    Claim(
        "3b",
        "adaptive and static allocation are equal",
        "Adaptive allocation matches static resource-only allocation: within 2 points.",
        Contrast("hasfl", ("heterofl",)),
        Region(-2, 2),
        IMAGES,
    ),
    Claim(
        "3c",
        "adaptive allocation and random tiers are equal",
        "Adaptive allocation does not separate from random tiers: within 2 points.",
        Contrast("hasfl", ("fjord",)),
        Region(-2, 2),
        IMAGES,
    ),
    Claim(
        "3d",
        "random tiers beat adaptive allocation on text",
        "On natural partitions adaptive allocation is the weakest: below random tiers.",
        Contrast("hasfl", ("fjord",)),
        Region(high=0),
        TEXT,
    ),
    Claim(
        "3e",
        "Uniform beats adaptive allocation on text",
        "On natural partitions adaptive allocation is the weakest: below Uniform.",
        Contrast("hasfl", ("uniform",)),
        Region(high=0),
        TEXT,
    ),
    Claim(
        "3f",
        "random widths of the same mean in each round do as well",
        "Our control: HAS-FL with its guarantee but random widths, matched in every round, ends within "
        "2 points.",
        Contrast("hasfl", ("hasfl-control",)),
        Region(-2, 2),
        ALL,
    ),
    Claim(
        "3g",
        "the direction of the allocation does not matter",
        "Our control: giving the most width to the least divergent clients ends within 2 points. (Means are "
        "equal before caps only; see the widths.)",
        Contrast("hasfl", ("hasfl-reversed",)),
        Region(-2, 2),
        IMAGES,
    ),
    Claim(
        "4b",
        "sub-models give up accuracy",
        "Sub-models give up accuracy against full-model training.",
        Contrast("fedavg", SUB_MODELS),
        Region(low=0),
        IMAGES,
    ),
    Claim(
        "4c",
        "they give up 8 to 13 points",
        "They give up roughly 8 to 13 points: 7 to 14.",
        Contrast("fedavg", SUB_MODELS),
        Region(7, 14),
        IMAGES,
    ),
    Claim(
        "4d",
        "FedProx collapses on CIFAR-10",
        "FedProx with mu = 1 collapses on CIFAR-10: 10 points or more below FedAvg.",
        Contrast("fedavg", ("fedprox",)),
        Region(low=10),
        ("CIFAR-10",),
    ),
    Claim(
        "4e",
        "FedProx is healthy on many classes",
        "FedProx with mu = 1 is healthy on many classes: less than 10 points below FedAvg.",
        Contrast("fedavg", ("fedprox",)),
        Region(high=10),
        ("EMNIST",),
    ),
)


@dataclass(frozen=True)
class Finding:
    """What the study says of a claim on one task, or over all of its tasks.

    Attributes:
        name: The claim's.
        short: The claim's.
        sentence: The claim's.
        task: Title of the task.
        statistic: What was computed, in words.
        region: Where it must lie.
        found: Our value with its interval, None where runs are missing.
        paper: The same of the paper's printed numbers, None where it prints none.
        verdict: By ``RULE``.
        digits: Digits to print.
        reason: Why there is no verdict.
        runs: Folders that it was computed from.
        counted: Whether it is an exact count rather than an estimate over seeds.
    """

    name: str
    short: str
    sentence: str
    task: str
    statistic: str
    region: Region
    found: Estimate | None
    paper: float | None
    verdict: Verdict
    digits: int
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
    if results.expected is None:
        return []
    found = [finding for claim in CLAIMS for finding in _of_claim(results, claim)]
    return sorted([*found, *_costs(results)], key=lambda finding: finding.name)


def outcomes(found: Sequence[Finding]) -> dict[str, list[str]]:
    """Return verdict -> the claims, as "short (number)", that have it on every task that was tested.

    Claims whose verdict is not the same on all tasks are listed under "different between tasks".
    """
    verdicts: dict[str, set[Verdict]] = {}
    for one in found:
        if one.task != OVER_TASKS:
            verdicts.setdefault(f"{one.short} ({one.name})", set()).add(one.verdict)
    told: dict[str, list[str]] = {outcome: [] for outcome in (*VERDICTS, MIXED)}
    for name, found_ in verdicts.items():
        tested = (found_ - {"not tested"}) or found_
        told[MIXED if len(tested) > 1 else tested.pop()].append(name)
    return {outcome: names for outcome, names in told.items() if names}


def _of_claim(results: StudyResults, claim: Claim) -> Iterator[Finding]:
    assert results.expected is not None
    tasks = list(results.paper_tasks(claim.tasks))
    by_task = [claim.statistic.ours(results, task) for task in tasks]
    papers = [claim.statistic.paper(results.expected, task.paper or "") for task in tasks]
    for task, by_seed, paper in zip(tasks, by_task, papers, strict=True):
        yield _finding(results, claim, task.title, [task], by_seed, paper)
    if len(tasks) > 1 and all(by_task):
        known = [paper for paper in papers if paper is not None]
        paper = float(np.mean(known)) if len(known) == len(papers) else None
        yield _finding(results, claim, OVER_TASKS, tasks, pooled(by_task), paper)


def _finding(
    results: StudyResults,
    claim: Claim,
    title: str,
    tasks: Sequence[Task],
    by_seed: dict[int, float],
    paper: float | None,
) -> Finding:
    found = estimate(list(by_seed.values()))
    cells = [
        cell for task in tasks for label in claim.statistic.labels for cell in results.of(task.label, label)
    ]
    verdict = judge(found, claim.region)
    reason = ""
    if found is None:
        lacking = [x for x in claim.statistic.labels if not any(results.runs(t.label, x) for t in tasks)]
        reason = f"no finished run of {', '.join(lacking)}" if lacking else "undefined, or no seed in common"
    elif found.low is None:
        reason = "one seed gives no interval"
    return Finding(
        claim.name,
        claim.short,
        claim.sentence,
        title,
        claim.statistic.words,
        claim.region,
        found,
        paper,
        verdict,
        2 if isinstance(claim.statistic, Link) else 1,
        reason,
        tuple(sorted(cell.path for cell in cells if cell.done and cell.seed in by_seed)),
    )


def _costs(results: StudyResults) -> Iterator[Finding]:
    """Yield the claims on cost, which are counted and not estimated: their interval is a point."""
    assert results.expected is not None
    region = Region(6, 7)
    for model in results.expected.costs:
        by_width = {cost.width: cost for cost in paper_costs(model)}
        for what, column, attribute in (("parameters", 0, "params"), ("MACs", 1, "macs")):
            counts = {width: getattr(cost, attribute) for width, cost in by_width.items()}
            share = 100 * counts[0.25] / counts[1.0]
            exact = Estimate(share, None, 1, share, share)
            yield Finding(
                "4a",
                "a quarter-width client costs 6 to 7 %",
                "A quarter-width client trains only 6 to 7 % of the full model.",
                model.title,
                f"{what} at width 0.25 in % of width 1 (counted exactly)",
                region,
                exact,
                100 * model.rows[0.25][column] / model.rows[1.0][column],
                judge(exact, region),
                1,
                counted=True,
            )
