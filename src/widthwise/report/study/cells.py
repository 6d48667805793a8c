"""From runs to the cells of a table: *ours*, *paper* and *difference*."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from widthwise.engine.runs import RunResult
from widthwise.report.study.results import Cell, StudyResults, Task
from widthwise.report.study.statistics import Estimate, estimate
from widthwise.studies.claims import Quantity

NOT_RUN, NOT_PRINTED, OTHER_DATA, NOTHING = "not run", "not in the paper", "other data", "–"
#: What the three columns of every quantity mean.
CAPTION = (
    "Best: over the rounds that were evaluated. Ours: mean ± standard deviation over the finished seeds. "
    "Difference: ours minus paper, in the units of the column; it is not formed where our task is on "
    "another data set than the paper's, whose name then stands before the paper's number."
)


@dataclass(frozen=True)
class Measure:
    """A quantity of a finished run: heading, how it is read from ``result.json``, and digits to print."""

    heading: str
    of: Callable[[Mapping[str, Any]], float]
    digits: int


MEASURES: dict[Quantity, Measure] = {
    "best": Measure("best accuracy (%)", lambda r: 100 * r["best_accuracy"], 1),
    "final": Measure("final accuracy (%)", lambda r: 100 * r["final_accuracy"], 1),
    "peak_to_final": Measure(
        "peak to final (points)", lambda r: 100 * (r["final_accuracy"] - r["best_accuracy"]), 1
    ),
    "width": Measure("average width", lambda r: float(r["mean_width"]), 2),
}


def values(runs: Mapping[int, RunResult], quantity: Quantity) -> dict[int, float]:
    """Return a quantity of finished runs by seed: accuracies in %, the decay in points."""
    return {seed: MEASURES[quantity].of(run.result) for seed, run in runs.items() if run.result is not None}


def method_text(results: StudyResults, task: str, label: str, name: str = "") -> str:
    """Return a method's label or another name of it, with the seeds in which it missed its budget."""
    missed = [f"s{cell.seed}" for cell in results.of(task, label) if cell.unmet]
    return (name or label) + (f" (budget not met: {', '.join(missed)})" if missed else "")


def seeds_text(results: StudyResults, task: str, label: str) -> str:
    """Return how many of the planned seeds stand behind a row: "3", "2 of 3", "0 of 3"."""
    cells = results.of(task, label)
    done = sum(cell.done for cell in cells)
    return str(done) if done == len(cells) else f"{done} of {len(cells)}"


def state_text(results: StudyResults, task: str, label: str) -> str:
    """Return what became of the planned seeds, for example "finished" or "s42 finished; s43 not run"."""
    cells = results.of(task, label)
    states = {cell.state for cell in cells} or {NOT_RUN}
    return states.pop() if len(states) == 1 else "; ".join(f"s{cell.seed} {cell.state}" for cell in cells)


def triple(results: StudyResults, task: Task, label: str, quantity: Quantity) -> tuple[str, str, str]:
    """Return the cells *paper*, *ours* and *difference* of one quantity."""
    digits = MEASURES[quantity].digits
    found = estimate(list(values(results.runs(task.label, label), quantity).values()))
    row = results.paper(task, label)
    printed = row.mean(quantity) if row else None
    sd = row.sd(quantity) if row else None
    paper = NOT_PRINTED if printed is None else of_paper(task, spread(printed, sd, digits))
    ours = state_text(results, task.label, label) if found is None else spread(found.mean, found.sd, digits)
    return paper, ours, difference_text(task, found.mean if found else None, printed, digits)


def of_paper(task: Task, text: str) -> str:
    """Return a paper's number with the name of its data set before it, where ours is another one."""
    return f"{task.paper}: {text}" if task.stand_in else text


def difference(task: Task, ours: float | None, paper: float | None) -> float | None:
    """Return ours minus paper; None where one is missing or our data set is not the paper's."""
    return None if ours is None or paper is None or task.stand_in else ours - paper


def difference_text(task: Task, ours: float | None, paper: float | None, digits: int) -> str:
    """Return the cell *difference*."""
    if ours is None or paper is None:
        return NOTHING
    found = difference(task, ours, paper)
    return OTHER_DATA if found is None else signed(found, digits)


def key(table: str, task: Task, label: str, quantity: str) -> dict[str, Any]:
    """Return the columns that say what a record is about."""
    return {"table": table, "task": task.title, "method": label, "quantity": quantity}


def records(
    results: StudyResults, table: str, task: Task, label: str, quantity: Quantity
) -> list[dict[str, Any]]:
    """Return the long-form rows of one quantity: the mean, then every planned seed."""
    by_seed = values(results.runs(task.label, label), quantity)
    row = results.paper(task, label)
    printed = row.mean(quantity) if row else None
    cells = results.of(task.label, label)
    about = key(table, task, label, quantity)
    mean = seed_records(about, by_seed, cells)[0]
    mean |= {
        "paper": printed,
        "paper_sd": row.sd(quantity) if row else None,
        "paper_task": task.paper if row else None,
        "difference": difference(task, mean["value"], printed),
        "state": state_text(results, task.label, label),
    }
    single = [
        {**about, "seed": cell.seed, "value": by_seed.get(cell.seed), "state": cell.state, "runs": cell.path}
        for cell in cells
    ]
    return [mean, *single]


def seed_records(
    about: Mapping[str, Any],
    by_seed: Mapping[int, float],
    cells: Sequence[Cell],
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> list[dict[str, Any]]:
    """Return the records of a mean over seeds, with its interval, and of each seed, with their folders."""

    def paths(*seeds: int) -> str:
        return " ".join(cell.path for cell in cells if cell.done and cell.seed in seeds)

    found = estimate(list(by_seed.values()), limits)
    mean = {**about, "seed": "mean", **interval_record(found), "runs": paths(*by_seed)}
    return [mean, *({**about, "seed": s, "value": x, "runs": paths(s)} for s, x in by_seed.items())]


def interval_record(found: Estimate | None) -> dict[str, Any]:
    """Return the columns that describe a mean and its interval."""
    if found is None:
        return {"value": None, "sd": None, "n": 0, "low": None, "high": None}
    return {"value": found.mean, "sd": found.sd, "n": found.n, "low": found.low, "high": found.high}


def spread(mean: float, sd: float | None, digits: int) -> str:
    """Return "mean ± sd", or the mean alone."""
    return number(mean, digits) + ("" if sd is None else f" ± {sd:.{digits}f}")


def number(value: float, digits: int) -> str:
    """Return a number with a true minus sign, and no minus before zero."""
    return f"{value + 0.0:z.{digits}f}".replace("-", "−")


def signed(value: float, digits: int) -> str:
    """Return a number that always bears its sign, except for zero.

    Example:
        >>> signed(1.25, 1), signed(-0.04, 1), signed(-2, 0)
        ('+1.2', '0.0', '−2')
    """
    text = number(value, digits)
    return text if text.startswith("−") or float(text) == 0 else f"+{text}"


def interval_text(found: Estimate | None, digits: int) -> str:
    """Return "mean [low, high]" with signs, or why there is none."""
    if found is None:
        return NOT_RUN
    if found.low is None or found.high is None:
        return f"{signed(found.mean, digits)} (one seed: no interval)"
    return f"{signed(found.mean, digits)} [{signed(found.low, digits)}, {signed(found.high, digits)}]"
