"""The figures of the performance page, each drawn from one result."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from widthwise.report.style import Look, Plot, canvas, legend_below, looks

from .common import Document, Row
from .peers.table import fastest_first, speed
from .scaling import COPIES

GREY = "#8a8f98"
PANEL = (3.6, 2.9)  # inches


def cost_law(document: Document) -> Plot:
    """Draw time against multiply-accumulates, both as ratios to full width; a panel for each precision."""
    rows = document["rows"]
    styles = looks(_distinct(rows, "model"))
    precisions = _distinct(rows, "precision")
    told = []
    with canvas(len(precisions), size=(PANEL[0] * len(precisions), PANEL[1])) as (figure, axes):
        for panel, precision in zip(axes, precisions, strict=True):
            for model, look in styles.items():
                own = [row for row in rows if (row["model"], row["precision"]) == (model, precision)]
                _line(panel, own, "mac_ratio", "time_ratio", look, model)
                least = min(own, key=lambda row: row["width"])
                told.append(f"{model} {precision} {least['time_ratio']:.3f} ({least['mac_ratio']:.3f})")
            ends = [min(row["mac_ratio"] for row in rows), 1.0]
            panel.plot(ends, ends, color=GREY, linewidth=1, linestyle="--", label="time = MACs")
            panel.set(title=precision, xlabel="MACs / MACs at full width", xscale="log", yscale="log")
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_major_locator(FixedLocator((0.05, 0.1, 0.25, 0.5, 1.0)))
                _plain(axis, "{x:g}")
            panel.minorticks_off()
        axes[0].set_ylabel("time / time at full width")
        legend_below(figure, axes[0])
    title = "Time of local training against multiply-accumulates"
    alt = f"{title}. At the smallest width, time ratio (MAC ratio): {'; '.join(told)}."
    return Plot("cost_law", title, alt, figure)


def scaling(document: Document) -> Plot:
    """Draw speed-up against processes, a panel for each work."""
    rows = [row for row in document["rows"] if row["executor"] != "serial"]
    styles = looks(_distinct(rows, "executor"))
    works, told = _distinct(rows, "work"), []
    counts = sorted({row["processes"] for row in rows})
    with canvas(len(works), size=(2.4 * len(works) + 0.4, 2.6)) as (figure, axes):
        for panel, work in zip(axes, works, strict=True):
            panel.plot(counts, counts, color=GREY, linewidth=1, linestyle="--", label="ideal")
            for executor, look in styles.items():
                own = [row for row in rows if (row["work"], row["executor"]) == (work, executor)]
                _line(panel, own, "processes", "speed_up", look, executor)
                most = own[-1]
                told.append(f"{work}, {executor}: {most['speed_up']:.2f} with {most['processes']}")
            panel.set(title=work, xlabel="processes", xticks=counts)
        axes[0].set_ylabel("speed-up")
        legend_below(figure, axes[0])
    title = "Speed-up with processes"
    alt = f"{title}, beside that of {COPIES}. {'; '.join(told)}."
    return Plot("scaling", title, alt, figure)


def registered_clients(document: Document) -> Plot:
    """Draw peak memory against registered clients."""
    rows = document["rows"]
    with canvas(size=(4.8, 2.7)) as (figure, (axes,)):
        _memory(axes, rows, "clients", "registered clients")
        axes.set_ylim(0, 1.1 * max(row["server_mib"] for row in rows))
        legend_below(figure, axes)
    title = "Peak memory against registered clients"
    return Plot("registered_clients", title, f"{title}. {_told_memory(rows, 'clients')}.", figure)


def cohort(document: Document) -> Plot:
    """Draw peak memory against the cohort, beside what its models would take, for each kind of round."""
    by_method = {name: list(some) for name, some in groupby(document["rows"], lambda row: row["method"])}
    with canvas(len(by_method), size=(2.4 * len(by_method) + 0.8, 2.7)) as (figure, axes):
        for panel, (name, rows) in zip(axes, by_method.items(), strict=True):
            _memory(panel, rows, "cohort", "cohort")
            models = [row["models_mib"] for row in rows]
            cohorts = [row["cohort"] for row in rows]
            panel.plot(cohorts, models, color=GREY, linewidth=1, linestyle="--", label="cohort x model")
            panel.set(title=name, yscale="log")
            panel.label_outer()
            _plain(panel.yaxis)
        legend_below(figure, axes[0])
    title = "Peak memory against the cohort"
    told = "; ".join(f"{name}: {_told_memory(rows, 'cohort')}" for name, rows in by_method.items())
    return Plot("cohort", title, f"{title}. {told}.", figure)


def peers(document: Document) -> Plot:
    """Draw the samples that each simulator trains a second, a panel for each setting."""
    settings = list(document["settings"])
    found = {name: fastest_first(document, name)[::-1] for name in settings}
    colours = {peer: look.colour for peer, look in looks(_distinct(document["rows"], "peer")).items()}
    told = []
    with canvas(len(settings), size=(3.2 * len(settings) + 0.2, 2.6), share_y=False) as (figure, axes):
        for panel, (name, variants) in zip(axes, found.items(), strict=True):
            labels = [f"{v[0]['peer']} {v[0]['precision']}" for v in variants]
            speeds = [speed(v) for v in variants]
            bars = panel.barh(labels, speeds, color=[colours[v[0]["peer"]] for v in variants])
            panel.bar_label(bars, [f"{value:,.0f}" for value in speeds], padding=3, fontsize=8)
            panel.set(title=name, xlabel="samples / s")
            panel.margins(x=0.25)
            panel.grid(axis="y", visible=False)
            panel.xaxis.set_major_locator(MaxNLocator(3))
            _plain(panel.xaxis)
            listed = ", ".join(f"{label} {value:,.0f}" for label, value in zip(labels, speeds, strict=True))
            told.append(f"{name}: {listed}")
    title = "Samples trained a second by simulators on the same work"
    return Plot("peers", title, f"{title}. {'; '.join(told)}.", figure)


def _distinct(rows: Sequence[Row], key: str) -> list[str]:
    return list(dict.fromkeys(row[key] for row in rows))


def _line(axes: Axes, rows: Sequence[Row], x: str, y: str, look: Look, label: str) -> None:
    axes.plot(
        [row[x] for row in rows],
        [row[y] for row in rows],
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        markersize=4,
        linewidth=1.2,
        label=label,
    )


def _memory(axes: Axes, rows: Sequence[Row], key: str, words: str) -> None:
    for name, look in looks(["server", "worker"]).items():
        _line(axes, rows, key, f"{name}_mib", look, name)
    axes.set(xlabel=words, ylabel="peak memory (MiB)", xscale="log")
    _plain(axes.xaxis)


def _told_memory(rows: Sequence[Row], key: str) -> str:
    (first, last), told = (rows[0], rows[-1]), []
    for who in ("server", "worker"):
        least, most = first[f"{who}_mib"], last[f"{who}_mib"]
        told.append(f"{who} {least:.0f} MiB with {first[key]:,} and {most:.0f} with {last[key]:,}")
    return ", ".join(told)


def _plain(axis: Axis, form: str = "{x:,.0f}") -> None:
    """Write numbers at the ticks of an axis: powers of ten would be formulas, which figures do not have."""
    axis.set_major_formatter(StrMethodFormatter(form))
    axis.set_minor_formatter(NullFormatter())


def size_of(figure: Figure) -> tuple[int, int]:
    """Return width and height of a figure in pixels of the page."""
    width, height = figure.get_size_inches()
    return round(96 * width), round(96 * height)
