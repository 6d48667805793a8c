"""The paper's figures 2 to 8 from stored runs, one panel for each task, and the sub-models of every tier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from widthwise.engine.runs import RunResult
from widthwise.report.comparison import curve, tier_means
from widthwise.report.study.cells import values
from widthwise.report.study.results import StudyResults, Task
from widthwise.report.study.statistics import estimate
from widthwise.report.style import Look, Plot, canvas, legend_below, looks, tier_colours

STRATEGIES = ("hasfl", "fjord", "uniform")
FULL_MODELS = ("hasfl", "fedavg", "scaffold", "fedprox")
ADAPTIVE = "hasfl"
_BAND = "Mean over seeds; the band is one standard deviation."


def study_figures(results: StudyResults) -> list[Plot]:
    """Return the figures for which something is there, in the paper's order."""
    styles = looks(results.labels())
    others = [label for label in results.labels() if label not in {*STRATEGIES, *FULL_MODELS} - {ADAPTIVE}]
    plots = [
        _allocation_rule(results),
        _over_rounds(results, styles, "figure-3", "Figure 3: Allocation strategies over rounds", STRATEGIES),
        _over_rounds(results, styles, "figure-3b", "Coverage and matched controls over rounds", others),
        _estimates(results, styles),
        _final_widths(results),
        _accuracy_against_width(results, styles),
        _over_rounds(results, styles, "figure-7", "Figure 7: Against full-model methods", FULL_MODELS),
        _over_rounds(results, styles, "figure-8", "Figure 8: Test loss", FULL_MODELS, "loss"),
        _tiers(results, styles),
    ]
    return [plot for plot in plots if plot is not None]


@contextmanager
def _panels(tasks: Sequence[Task], rows: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    count = len(tasks)
    with canvas(count, rows, (3.4 * count + 0.6, 2.5 * rows), share_y=False) as (figure, axes):
        for panel, task in zip(axes, tasks, strict=False):
            panel.set_title(task.title, fontsize=9.5)
        yield figure, axes


def _plot(
    name: str, title: str, figure: Figure, told: Mapping[str, Sequence[str]], notes: Sequence[str]
) -> Plot:
    panels = "; ".join(f"{task}: {', '.join(words)}" for task, words in told.items() if words)
    return Plot(name, title, f"{title}. {panels}.", figure, " ".join(note for note in notes if note))


def _lacks(results: StudyResults, labels: Sequence[str], tasks: Sequence[Task]) -> str:
    """Return what a figure lacks because runs are missing."""
    absent = {task.title: [x for x in labels if not results.runs(task.label, x)] for task in tasks}
    told = [f"{', '.join(some)} on {title}" for title, some in absent.items() if some]
    return f"Without a finished run, and so not drawn: {'; '.join(told)}." if told else ""


def _over_rounds(
    results: StudyResults,
    styles: Mapping[str, Look],
    name: str,
    title: str,
    labels: Sequence[str],
    column: str = "accuracy",
) -> Plot | None:
    known = [label for label in labels if label in styles]
    tasks = [task for task in results.tasks if any(results.runs(task.label, label) for label in known)]
    if not tasks:
        return None
    scale, unit = (100.0, "test accuracy (%)") if column == "accuracy" else (1.0, "test loss (nats)")
    told: dict[str, list[str]] = {}
    with _panels(tasks) as (figure, axes):
        for panel, task in zip(axes, tasks, strict=True):
            words = told.setdefault(task.title, [])
            for label in known:
                if runs := list(results.runs(task.label, label).values()):
                    end = _draw_curve(panel, runs, column, scale, styles[label], label)
                    words.append(f"{label} ends at {end:.3g}")
            panel.set_xlabel("round")
        axes[0].set_ylabel(unit)
        legend_below(figure, axes)
    return _plot(name, title, figure, told, (_BAND, _lacks(results, labels, results.tasks)))


def _draw_curve(
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


def _allocation_rule(results: StudyResults) -> Plot | None:
    """Draw eq. 6 at the study's settings; it needs no run."""
    task = next((task for task in results.tasks if ADAPTIVE in task.methods), None)
    if task is None:
        return None
    config = task.configs[ADAPTIVE]
    p_min, gamma, tiers = config.method["p_min"], config.method["gamma"], config.capacity.levels()
    ratio = np.linspace(0, 3, 121)
    colours = tier_colours(tiers)
    with canvas() as (figure, (axes,)):
        for tier in tiers:
            axes.plot(ratio, np.minimum(tier, p_min + gamma * ratio), color=colours[tier], label=f"{tier:g}")
        axes.set(xlabel="estimate relative to its mean", ylabel="width", ylim=(0, 1.04))
        legend_below(figure, axes, "capacity")
    title = "Figure 2: Allocation rule"
    alt = (
        f"{title}. Width against relative estimate: {p_min:g} + {gamma:g} times the estimate over its mean, "
        f"cut off at the capacity, for capacities {', '.join(f'{tier:g}' for tier in tiers)}."
    )
    kept = "Under the guarantee, clients of the largest capacity keep it whatever their estimate."
    return Plot("figure-2", title, alt, figure, kept if config.method["guarantee"] else "")


def _estimates(results: StudyResults, styles: Mapping[str, Look]) -> Plot | None:
    tasks = [task for task in results.tasks if results.runs(task.label, ADAPTIVE)]
    if not tasks:
        return None
    look, told = styles[ADAPTIVE], {}
    with _panels(tasks, rows=2) as (figure, axes):
        upper, lower = axes[: len(tasks)], axes[len(tasks) :]
        for top, bottom, task in zip(upper, lower, tasks, strict=True):
            runs = list(results.runs(task.label, ADAPTIVE).values())
            end = _draw_curve(top, runs, "estimate_mean", 1.0, look, None)
            widths = np.array([run.clients.groupby("round")["width"].mean() for run in runs])
            rounds = np.arange(widths.shape[1]) + 1
            bottom.plot(rounds, widths.mean(axis=0), color=look.colour, label="mean width")
            capacity = float(np.mean([run.partition["capacities"] for run in runs]))
            bottom.axhline(capacity, color="#8a8f98", linestyle="--", label="mean capacity")
            bottom.set(xlabel="round", ylim=(0, None))
            told[task.title] = [
                f"mean estimate ends at {end:.2f}",
                f"mean width at {widths[:, -1].mean():.2f}",
            ]
        upper[0].set_ylabel("mean estimate")
        lower[0].set_ylabel("mean width")
        legend_below(figure, lower)
    notes = ("Above: mean smoothed estimate over clients. Below: mean width over clients.", _BAND)
    title = "Figure 4: Mean estimate and mean width over rounds"
    return _plot("figure-4", title, figure, told, (*notes, _lacks(results, [ADAPTIVE], results.tasks)))


def _final_widths(results: StudyResults) -> Plot | None:
    tasks = [task for task in results.tasks if results.runs(task.label, ADAPTIVE)]
    if not tasks:
        return None
    told, seeds = {}, []
    with _panels(tasks) as (figure, axes):
        for panel, task in zip(axes, tasks, strict=True):
            seed, run = next(iter(results.runs(task.label, ADAPTIVE).items()))
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
            seeds.append(f"{task.title} s{seed}")
        axes[0].set_ylabel("width")
        legend_below(figure, axes)
    title = "Figure 5: Final widths beside capacities"
    note = f"One run for each task: {', '.join(seeds)}."
    return _plot("figure-5", title, figure, told, (note, _lacks(results, [ADAPTIVE], results.tasks)))


def _accuracy_against_width(results: StudyResults, styles: Mapping[str, Look]) -> Plot | None:
    tasks = [task for task in results.tasks if any(results.runs(task.label, x) for x in task.methods)]
    if not tasks:
        return None
    told: dict[str, list[str]] = {}
    with _panels(tasks) as (figure, axes):
        for panel, task in zip(axes, tasks, strict=True):
            words = told.setdefault(task.title, [])
            for label in task.methods:
                accuracy = estimate(list(values(results, task.label, label, "final").values()))
                width = estimate(list(values(results, task.label, label, "width").values()))
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
    labels = results.labels()
    title = "Figure 6: Accuracy against average width"
    return _plot("figure-6", title, figure, told, (note, _lacks(results, labels, results.tasks)))


def _tiers(results: StudyResults, styles: Mapping[str, Look]) -> Plot | None:
    told: dict[str, list[str]] = {}
    means_of = {
        task.label: {x: tier_means(results.runs(task.label, x).values(), 100) for x in task.methods}
        for task in results.tasks
    }
    tasks = [task for task in results.tasks if any(means_of[task.label].values())]
    if not tasks:
        return None
    with _panels(tasks) as (figure, axes):
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
    return _plot(
        "tier-accuracy", "How good the sub-model of every tier is", figure, told, ("Mean over seeds.",)
    )
