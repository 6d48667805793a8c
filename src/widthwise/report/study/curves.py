"""Figures over rounds: the paper's groups of methods, and the estimate and width of the one that adapts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from widthwise.engine.runs import RunResult
from widthwise.report.comparison import curve
from widthwise.report.study.panels import BAND, Labels, finished, lacks, numbered, panels, plot
from widthwise.report.study.results import StudyResults
from widthwise.report.style import Look, Plot, legend_below


def curves(results: StudyResults, styles: Mapping[str, Look]) -> list[Plot]:
    """Return accuracy or loss over rounds, as the paper groups its methods, then of those in no group.

    Without a paper: the accuracy of all methods, and their loss.
    """
    drawn = [
        _over_rounds(results, styles, name, title, labels, column)
        for name, title, labels, column in _groups(results)
    ]
    return [one for one in drawn if one is not None]


def _groups(results: StudyResults) -> Iterator[tuple[str, str, Labels, str]]:
    """Yield name, title, methods and column of each figure."""
    everything = {task.label: task.methods for task in results.tasks}
    if results.expected is None:
        yield "accuracy", "Test accuracy over rounds", everything, "accuracy"
        yield "loss", "Test loss over rounds", everything, "loss"
        return
    left: Labels = everything
    for number, figure in results.expected.figures.items():
        of_task = {task.label: task.labels_of(figure.methods) for task in results.tasks}
        yield f"figure-{number}", numbered(results, number, figure.title), of_task, figure.column
        left = {task: [label for label in some if label not in of_task[task]] for task, some in left.items()}
    # What a control is matched to stands beside it.
    rest = {
        task.label: [x for x in task.methods if x in left[task.label] or x in task.sources.values()]
        for task in results.tasks
    }
    yield "figure-3b", "Coverage and matched controls over rounds", rest, "accuracy"


def _over_rounds(
    results: StudyResults,
    styles: Mapping[str, Look],
    name: str,
    title: str,
    labels: Labels,
    column: str,
) -> Plot | None:
    tasks = finished(results, labels)
    if not tasks:
        return None
    scale, unit = (100.0, "test accuracy (%)") if column == "accuracy" else (1.0, "test loss (nats)")
    told: dict[str, list[str]] = {}
    with panels(tasks) as (figure, axes):
        for panel, task in zip(axes, tasks, strict=True):
            words = told.setdefault(task.title, [])
            for label in labels[task.label]:
                if runs := list(results.runs(task.label, label).values()):
                    end = draw_curve(panel, runs, column, scale, styles[label], label)
                    words.append(f"{label} ends at {end:.3g}")
            panel.set_xlabel("round")
        axes[0].set_ylabel(unit)
        legend_below(figure, axes)
    return plot(name, title, figure, told, (BAND, lacks(results, labels)))


def draw_curve(
    axes: Axes, runs: Sequence[RunResult], column: str, scale: float, look: Look, label: str | None
) -> float:
    """Draw mean and band of a column of the rounds; return the last mean."""
    table = curve(runs, column)
    rounds, mean, spread = table["round"] + 1, scale * table["mean"], scale * table["std"].fillna(0.0)
    axes.plot(rounds, mean, color=look.colour, linestyle=look.line, label=label)
    if len(runs) > 1:
        axes.fill_between(rounds, mean - spread, mean + spread, color=look.colour, alpha=0.15, linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    return float(mean.iloc[-1]) if len(mean) else float("nan")


def estimates(results: StudyResults, styles: Mapping[str, Look], labels: Labels) -> Plot | None:
    """Return mean estimate and mean width over rounds of one method for each task."""
    tasks = finished(results, labels)
    if not tasks:
        return None
    told = {}
    with panels(tasks, rows=2) as (figure, axes):
        upper, lower = axes[: len(tasks)], axes[len(tasks) :]
        for top, bottom, task in zip(upper, lower, tasks, strict=True):
            (label,) = labels[task.label]
            look, runs = styles[label], list(results.runs(task.label, label).values())
            end = draw_curve(top, runs, "estimate_mean", 1.0, look, None)
            widths = np.array([run.clients.groupby("round")["width"].mean() for run in runs])
            rounds = np.arange(widths.shape[1]) + 1
            bottom.plot(rounds, widths.mean(axis=0), color=look.colour, label="mean width")
            capacity = float(np.mean([run.partition["capacities"] for run in runs]))
            bottom.axhline(capacity, color="#8a8f98", linestyle="--", label="mean capacity")
            bottom.set(xlabel="round", ylim=(0, None))
            told[task.title] = [
                f"mean estimate of {label} ends at {end:.2f}",
                f"mean width at {widths[:, -1].mean():.2f}",
            ]
        upper[0].set_ylabel("mean estimate")
        lower[0].set_ylabel("mean width")
        legend_below(figure, lower)
    shown = ", ".join(dict.fromkeys(label for task in tasks for label in labels[task.label]))
    notes = (f"{shown}. Above: mean smoothed estimate over clients. Below: mean width over clients.", BAND)
    title = numbered(results, 4, "Mean estimate and mean width over rounds")
    return plot("figure-4", title, figure, told, (*notes, lacks(results, labels)))
