"""From runs to the cells of a table: *ours*, *paper* and *difference*."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from widthwise.engine.runs import RunResult
from widthwise.report.study.results import StudyResults, Task
from widthwise.report.study.statistics import Estimate, estimate
from widthwise.studies.expected import Quantity

NOT_RUN, NOT_PRINTED, OTHER_DATA, NOTHING = "not run", "not in the paper", "other data", "–"
#: What the three columns of every quantity mean.
CAPTION = (
    "Best: over the rounds that were evaluated. Ours: mean ± standard deviation over the finished seeds. "
    "Difference: ours minus paper, in the units of the column; it is not formed where our task is on "
    "another data set than the paper's."
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


def value(run: RunResult, quantity: Quantity) -> float:
    """Return a quantity of a finished run: accuracies in %, the decay in points."""
    assert run.result is not None
    return MEASURES[quantity].of(run.result)


def values(results: StudyResults, task: str, label: str, quantity: Quantity) -> dict[int, float]:
    """Return a quantity of a method's finished runs by seed."""
    return {seed: value(run, quantity) for seed, run in results.runs(task, label).items()}


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
    found = estimate(list(values(results, task.label, label, quantity).values()))
    row = results.paper(task, label)
    printed = row.mean(quantity) if row else None
    paper = NOT_PRINTED if printed is None else spread(printed, row.sd(quantity) if row else None, digits)
    ours = state_text(results, task.label, label) if found is None else spread(found.mean, found.sd, digits)
    difference = NOTHING
    if found is not None and printed is not None:
        difference = OTHER_DATA if task.stand_in else signed(found.mean - printed, digits)
    return paper, ours, difference


def records(
    results: StudyResults, table: str, task: Task, label: str, quantity: Quantity
) -> list[dict[str, Any]]:
    """Return the long-form rows of one quantity: the mean, then every planned seed."""
    by_seed = values(results, task.label, label, quantity)
    found = estimate(list(by_seed.values()))
    row = results.paper(task, label)
    printed = row.mean(quantity) if row else None
    cells = results.of(task.label, label)
    same_data = found is not None and printed is not None and not task.stand_in
    key = {"table": table, "task": task.title, "method": label, "quantity": quantity}
    mean = {
        **key,
        "seed": "mean",
        **interval_record(found),
        "paper": printed,
        "paper_sd": row.sd(quantity) if row else None,
        "difference": found.mean - printed if found and printed is not None and same_data else None,
        "state": state_text(results, task.label, label),
        "runs": " ".join(cell.path for cell in cells if cell.done),
    }
    single = [
        {**key, "seed": cell.seed, "value": by_seed.get(cell.seed), "state": cell.state, "runs": cell.path}
        for cell in cells
    ]
    return [mean, *single]


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
