"""Statistics of a study that have one value per seed: levels, paired differences and correlations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from widthwise.audit import clients_of, correlations_of
from widthwise.audit.confound import HEADINGS
from widthwise.audit.table import COLUMNS
from widthwise.engine.runs import RunResult
from widthwise.report.study.cells import values
from widthwise.report.study.results import StudyResults, Task
from widthwise.report.study.statistics import paired, pooled
from widthwise.studies.expected import Expected, Quantity

WORDS: Mapping[Quantity, str] = {
    "best": "best accuracy",
    "final": "final accuracy",
    "peak_to_final": "final minus best accuracy",
    "width": "average width",
}


@dataclass(frozen=True)
class Contrast:
    """A quantity of one method, minus the mean of others in the same seed; without others, its level.

    Formula: c_s = q_s(first) - (1 / K) sum_k q_s(other_k), for the seeds that all of them have finished.

    Attributes:
        first: Label of the method.
        others: Labels of the others.
        quantity: What is compared.
    """

    first: str
    others: tuple[str, ...] = ()
    quantity: Quantity = "final"

    @property
    def labels(self) -> tuple[str, ...]:
        """The methods that must have been run."""
        return (self.first, *self.others)

    @property
    def words(self) -> str:
        """What is computed."""
        what = f"{WORDS[self.quantity]} of {self.first}"
        if len(self.others) > 1:
            return f"{what} minus the mean of {', '.join(self.others)}, paired by seed"
        return f"{what} minus {self.others[0]}, paired by seed" if self.others else what

    def ours(self, results: StudyResults, task: Task) -> dict[int, float]:
        """Return the value of every seed."""
        first = values(results, task.label, self.first, self.quantity)
        others = [values(results, task.label, label, self.quantity) for label in self.others]
        return paired(first, pooled(others)) if others else first

    def paper(self, expected: Expected, key: str) -> float | None:
        """Return the same of the paper's printed means, or None where it does not print them all."""
        rows = [expected.result(key, label) for label in self.labels]
        means = [row.mean(self.quantity) for row in rows if row is not None]
        if len(means) < len(rows):
            return None
        return means[0] - (float(np.mean(means[1:])) if self.others else 0.0)


@dataclass(frozen=True)
class Link:
    """A correlation over the clients of a method's runs, one of ``audit.table.COLUMNS``."""

    label: str
    column: str

    @property
    def labels(self) -> tuple[str, ...]:
        """The methods that must have been run."""
        return (self.label,)

    @property
    def words(self) -> str:
        """What is computed."""
        return f"{LINK_WORDS[self.column]} over the clients of a run of {self.label}, mean over seeds"

    def ours(self, results: StudyResults, task: Task) -> dict[int, float]:
        """Return the value of every seed in which it is defined."""
        found = {s: links(run)[self.column] for s, run in results.runs(task.label, self.label).items()}
        return {seed: r for seed, r in found.items() if r is not None}

    def paper(self, expected: Expected, key: str) -> float | None:
        """Return the mean over the paper's seeds, which it prints for HAS-FL only."""
        rows = expected.correlations.get(key, {})
        if self.label != "hasfl" or not rows:
            return None
        return float(np.mean([row[COLUMNS.index(self.column)] for row in rows.values()]))


LINK_WORDS = dict(zip(COLUMNS, HEADINGS, strict=True))
Statistic = Contrast | Link


def links(run: RunResult) -> dict[str, float | None]:
    """Return the four correlations of a finished run, as its audit has them; None where one is undefined.

    H: final smoothed estimate (a run may end before the first one is due). TV: label divergence. ``|
    capacity``: capacity removed linearly from both.
    Source: Moayedikia and Troncoso Lora (2026), Table 5.
    """
    return correlations_of(clients_of(run))
