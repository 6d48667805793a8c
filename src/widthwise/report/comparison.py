"""Figures that compare experiments: over rounds, over widths and over tiers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from widthwise.audit import RunGroup
from widthwise.engine.runs import RunResult
from widthwise.report.style import Look, Plot, canvas, legend_below

Looks = Mapping[str, Look]


def finished(group: RunGroup) -> list[RunResult]:
    """Return the finished runs of a group."""
    return [run for run in group.runs if run.complete]


def shown(group: RunGroup) -> list[RunResult]:
    """Return the runs that stand for a group in curves: the finished ones, or all while there are none."""
    return finished(group) or list(group.runs)


def values(group: RunGroup, key: str) -> list[float]:
    """Return a figure of ``result.json`` over the finished runs of a group."""
    return [float(run.result[key]) for run in group.runs if run.result is not None]


def curve(runs: Sequence[RunResult], column: str) -> pd.DataFrame:
    """Return mean and sd of a column of ``rounds.jsonl`` over runs, by round, where it was measured."""
    table = pd.concat([run.rounds[["round", column]] for run in runs]).dropna()
    return table.groupby("round")[column].agg(["mean", "std"]).reset_index()


@dataclass(frozen=True)
class Measure:
    """A column of ``rounds.jsonl`` that is drawn over rounds; ``is_share``: its axis goes from 0 to 100 %."""

    column: str
    title: str
    unit: str
    scale: float = 1.0
    is_share: bool = False


MEASURES = (
    Measure("loss", "Test loss over rounds", "test loss (nats)"),
    Measure("mean_width", "Width that the cohort trains", "mean width of the cohort"),
    Measure("estimate_mean", "Update divergence over rounds", "mean estimate (1)"),
    Measure("coverage", "Share of the model that each cohort trains", "coordinates trained (%)", 100, True),
    Measure("ever_covered", "Share that anybody has trained so far", "coordinates trained (%)", 100, True),
)


def comparison_plots(groups: Sequence[RunGroup], styles: Looks) -> dict[str, Plot]:
    """Return the figures by name; a figure for which nothing was measured is left out."""
    done = {group.label: np.mean(values(group, "final_accuracy")) for group in groups if finished(group)}
    best = max(done, key=lambda label: done[label], default=None)
    lead = f"{best} ends highest, at {100 * done[best]:.1f} %" if best else "Test accuracy so far"
    accuracy = Measure(
        "accuracy", lead if len(done) > 1 else "Test accuracy over rounds", "test accuracy (%)", 100
    )
    plots = [_over_rounds(groups, styles, measure) for measure in (accuracy, *MEASURES)]
    if done:
        plots += [_accuracy_against_width(groups, styles), _tier_accuracy(groups, styles)]
    return {plot.name: plot for plot in plots if plot is not None}


def _over_rounds(groups: Sequence[RunGroup], styles: Looks, measure: Measure) -> Plot | None:
    ends = []
    with canvas() as (figure, (axes,)):
        for group in groups:
            table, look = curve(shown(group), measure.column), styles[group.label]
            if table.empty:
                continue
            rounds, mean = table["round"] + 1, measure.scale * table["mean"]
            label = group.label if finished(group) else f"{group.label} (unfinished)"
            marker = look.marker if len(table) == 1 else ""
            axes.plot(rounds, mean, color=look.colour, linestyle=look.line, label=label, marker=marker)
            spread = measure.scale * table["std"].fillna(0.0)
            axes.fill_between(
                rounds, mean - spread, mean + spread, color=look.colour, alpha=0.15, linewidth=0
            )
            ends.append(f"{label} {mean.iloc[-1]:.3g}")
        axes.set(xlabel="round", ylabel=measure.unit)
        if measure.is_share:
            axes.set_ylim(0, 103)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend_below(figure, axes)
    if not ends:
        return None
    several = any(len(shown(group)) > 1 for group in groups)
    note = "Mean over seeds; the band is one standard deviation." if several else ""
    alt = f"{measure.title}. Line chart of {measure.unit} by round. Last values: {'; '.join(ends)}."
    return Plot(measure.column, measure.title, alt, figure, note)


def _accuracy_against_width(groups: Sequence[RunGroup], styles: Looks) -> Plot:
    with canvas() as (figure, (axes,)):
        told = []
        for group in filter(finished, groups):
            look = styles[group.label]
            width, accuracy = values(group, "mean_width"), 100 * np.array(values(group, "final_accuracy"))
            sd = accuracy.std(ddof=1) if len(accuracy) > 1 else 0.0
            axes.plot(width, accuracy, look.marker, color=look.colour, markersize=3, alpha=0.45)
            axes.errorbar(
                np.mean(width), accuracy.mean(), sd, fmt=look.marker, color=look.colour, label=group.label
            )
            told.append(f"{group.label} {accuracy.mean():.1f} % at {np.mean(width):.2f}")
        axes.set(xlabel="average width over the run", ylabel="final test accuracy (%)")
        legend_below(figure, axes)
    several = any(len(finished(group)) > 1 for group in groups)
    note = (
        "Large marks: mean over seeds, bars one standard deviation; small marks: single seeds."
        if several
        else ""
    )
    alt = f"Scatter of final accuracy against average width: {'; '.join(told)}."
    return Plot("accuracy-against-width", "What accuracy costs in width", alt, figure, note)


def tier_means(runs: Iterable[RunResult], scale: float = 1.0) -> dict[float, float]:
    """Return ``scale`` times the accuracy of every tier's sub-model, mean over the finished runs."""
    by_tier: dict[float, list[float]] = {}
    for run in runs:
        for tier, accuracy in run.tier_accuracy.items():
            by_tier.setdefault(tier, []).append(scale * accuracy)
    return {tier: float(np.mean(by_tier[tier])) for tier in sorted(by_tier)}


def _tier_accuracy(groups: Sequence[RunGroup], styles: Looks) -> Plot | None:
    told = []
    with canvas() as (figure, (axes,)):
        for group in groups:
            means, look = tier_means(group.runs), styles[group.label]
            if means:
                y = [100 * accuracy for accuracy in means.values()]
                axes.plot(
                    list(means),
                    y,
                    color=look.colour,
                    linestyle=look.line,
                    marker=look.marker,
                    label=group.label,
                )
                told.append(
                    f"{group.label} from {y[0]:.1f} % at {min(means):g} to {y[-1]:.1f} % at {max(means):g}"
                )
        axes.set(xlabel="width of the sub-model", ylabel="test accuracy (%)")
        _ticks_at(axes, sorted({tier for group in groups for tier in tier_means(group.runs)}))
        legend_below(figure, axes)
    if not told:
        return None
    alt = f"Accuracy of the sub-model of every tier: {'; '.join(told)}."
    return Plot("tier-accuracy", "How good the sub-model of every tier is", alt, figure)


def _ticks_at(axes: Axes, tiers: Sequence[float]) -> None:
    if len(tiers) <= 8:
        axes.set_xticks(tiers, [f"{tier:g}" for tier in tiers])
