"""What the figures of a study share: one panel for each task, titles, and what they lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from widthwise.report.study.results import StudyResults, Task
from widthwise.report.style import Plot, canvas

BAND = "Mean over seeds; the band is one standard deviation."
Labels = Mapping[str, Sequence[str]]
"""Label of a task -> labels of the methods that a figure draws of it, in its order."""


@contextmanager
def panels(tasks: Sequence[Task], rows: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a figure with a titled column for each task, and its axes row by row."""
    count = len(tasks)
    with canvas(count, rows, (3.4 * count + 0.6, 2.5 * rows), share_y=False) as (figure, axes):
        for panel, task in zip(axes, tasks, strict=False):
            panel.set_title(task.title, fontsize=9.5)
        yield figure, axes


def plot(
    name: str, title: str, figure: Figure, told: Mapping[str, Sequence[str]], notes: Sequence[str]
) -> Plot:
    """Return a drawn figure; ``told``: title of a task -> what its panel shows, in words."""
    described = "; ".join(f"{task}: {', '.join(words)}" for task, words in told.items() if words)
    return Plot(name, title, f"{title}. {described}.", figure, " ".join(note for note in notes if note))


def numbered(results: StudyResults, number: int, words: str) -> str:
    """Return a figure's title, with its number in the paper where the study stands beside one."""
    return f"Figure {number}: {words}" if results.expected else words


def finished(results: StudyResults, labels: Labels) -> list[Task]:
    """Return the tasks of which a figure has anything to draw."""
    return [task for task in results.tasks if any(results.runs(task.label, x) for x in labels[task.label])]


def lacks(results: StudyResults, labels: Labels) -> str:
    """Return what a figure lacks because runs are missing."""
    absent = {
        task.title: [label for label in labels[task.label] if not results.runs(task.label, label)]
        for task in results.tasks
    }
    told = [f"{', '.join(some)} on {title}" for title, some in absent.items() if some]
    return f"Without a finished run, and so not drawn: {'; '.join(told)}." if told else ""
