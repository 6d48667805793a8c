"""The figures of a study from stored runs, one panel for each task: the paper's 2 to 8, and the tiers'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from widthwise.report.comparison import tier_means
from widthwise.report.study.cells import values
from widthwise.report.study.curves import curves, estimates
from widthwise.report.study.panels import Labels, finished, lacks, numbered, panels, plot
from widthwise.report.study.results import StudyResults
from widthwise.report.study.statistics import estimate
from widthwise.report.style import Look, Plot, canvas, legend_below, looks, tier_colours
from widthwise.studies.relations import eq_6


def study_figures(results: StudyResults) -> dict[str, list[Plot]]:
    """Return the figures for which something is there, by the section of the page that they stand in."""
    styles = looks(results.labels())
    adaptive = {task.label: eq_6(task.configs, task.sources) for task in results.tasks}
    labels = {task: [label] if label else [] for task, label in adaptive.items()}
    sections: dict[str, Sequence[Plot | None]] = {
        "results": [_accuracy_against_width(results, styles)],
        "curves": curves(results, styles),
        "tiers": [_tiers(results, styles)],
        "rule": [_allocation_rule(results, labels)],
        "estimates": [estimates(results, styles, labels), _final_widths(results, labels)],
    }
    return {place: [one for one in some if one is not None] for place, some in sections.items()}


def _allocation_rule(results: StudyResults, labels: Labels) -> Plot | None:
    """Draw eq. 6 at the settings of the first method that follows it; it needs no run."""
    config = next((task.configs[label] for task in results.tasks for label in labels[task.label]), None)
    if config is None:
        return None
    p_min, gamma, tiers = config.method["p_min"], config.method["gamma"], config.capacity.levels()
    ratio = np.linspace(0, 3, 121)
    colours = tier_colours(tiers)
    with canvas() as (figure, (axes,)):
        for tier in tiers:
            axes.plot(ratio, np.minimum(tier, p_min + gamma * ratio), color=colours[tier], label=f"{tier:g}")
        axes.set(xlabel="estimate relative to its mean", ylabel="width", ylim=(0, 1.04))
        legend_below(figure, axes, "capacity")
    title = numbered(results, 2, "Allocation rule")
    alt = (
        f"{title}. Width against relative estimate: {p_min:g} + {gamma:g} times the estimate over its mean, "
        f"cut off at the capacity, for capacities {', '.join(f'{tier:g}' for tier in tiers)}."
    )
    kept = "Under the guarantee, clients of the largest capacity keep it whatever their estimate."
    return Plot("figure-2", title, alt, figure, kept if config.method["guarantee"] else "")


def _final_widths(results: StudyResults, labels: Labels) -> Plot | None:
    tasks = finished(results, labels)
    if not tasks:
        return None
    told, seeds = {}, []
    with panels(tasks) as (figure, axes):
        for panel, task in zip(axes, tasks, strict=True):
            (label,) = labels[task.label]
            seed, run = next(iter(results.runs(task.label, label).items()))
            assert run.result is not None
            capacity, width = np.array(run.partition["capacities"]), np.array(run.result["widths"])
            order = np.lexsort((width, capacity))
            edges = np.arange(len(capacity) + 1) - 0.5
            panel.stairs(capacity[order], edges, fill=True, color="#d9dce2", label="capacity")
            panel.plot(width[order], "o", color="#0072B2", markersize=3.5, label="final width")
            panel.set(xlabel="client, by capacity", ylim=(0, 1.04))
            panel.grid(axis="x", visible=False)
            full = int(np.sum(width >= capacity - 1e-9))
            told[task.title] = [f"{full} of {len(width)} clients at their capacity"]
            seeds.append(f"{task.title} {label}-s{seed}")
        axes[0].set_ylabel("width")
        legend_below(figure, axes)
    title = numbered(results, 5, "Final widths beside capacities")
    note = f"One run for each task: {', '.join(seeds)}."
    return plot("figure-5", title, figure, told, (note, lacks(results, labels)))


def _accuracy_against_width(results: StudyResults, styles: Mapping[str, Look]) -> Plot | None:
    labels = {task.label: task.methods for task in results.tasks}
    tasks = finished(results, labels)
    if not tasks:
        return None
    told: dict[str, list[str]] = {}
    with panels(tasks) as (figure, axes):
        for panel, task in zip(axes, tasks, strict=True):
            words = told.setdefault(task.title, [])
            for label in task.methods:
                runs = results.runs(task.label, label)
                accuracy = estimate(list(values(runs, "final").values()))
                width = estimate(list(values(runs, "width").values()))
                if accuracy is None or width is None:
                    continue
                look = styles[label]
                error = [[accuracy.sd or 0.0], [accuracy.sd or 0.0]]
                panel.errorbar(
                    width.mean,
                    accuracy.mean,
                    error,
                    fmt=look.marker,
                    color=look.colour,
                    markersize=5,
                    fillstyle="full" if look.line == "-" else "none",
                    label=label,
                )
                words.append(f"{label} {accuracy.mean:.1f} % at width {width.mean:.2f}")
            panel.set(xlabel="average width", xlim=(0, 1.05))
        axes[0].set_ylabel("final test accuracy (%)")
        legend_below(figure, axes)
    note = "Mean over seeds; bars are one standard deviation."
    title = numbered(results, 6, "Accuracy against average width")
    return plot("figure-6", title, figure, told, (note, lacks(results, labels)))


def _tiers(results: StudyResults, styles: Mapping[str, Look]) -> Plot | None:
    told: dict[str, list[str]] = {}
    means_of = {
        task.label: {x: tier_means(results.runs(task.label, x).values(), 100) for x in task.methods}
        for task in results.tasks
    }
    tasks = [task for task in results.tasks if any(means_of[task.label].values())]
    if not tasks:
        return None
    with panels(tasks) as (figure, axes):
        for panel, task in zip(axes, tasks, strict=True):
            words = told.setdefault(task.title, [])
            for label in task.methods:
                means = means_of[task.label][label]
                if not means:
                    continue
                look, y = styles[label], list(means.values())
                panel.plot(
                    list(means),
                    y,
                    color=look.colour,
                    linestyle=look.line,
                    marker=look.marker,
                    markersize=4,
                    label=label,
                )
                words.append(
                    f"{label} from {y[0]:.1f} % at {min(means):g} to {y[-1]:.1f} % at {max(means):g}"
                )
            panel.set_xlabel("width of the sub-model")
        axes[0].set_ylabel("final test accuracy (%)")
        legend_below(figure, axes)
    return plot(
        "tier-accuracy", "How good the sub-model of every tier is", figure, told, ("Mean over seeds.",)
    )
