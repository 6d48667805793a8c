"""Figures of one run's clients: widths beside capacities, and what the estimate goes along with."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import MaxNLocator

from widthwise.audit import RunAudit
from widthwise.engine.runs import RunResult
from widthwise.report.style import Look, Plot, canvas, legend_below, tier_colours


def widths_plot(run: RunResult, name: str, look: Look) -> Plot:
    """Draw every client's final width inside its capacity, clients in order of both."""
    assert run.result is not None
    capacity = np.array(run.partition["capacities"], dtype=float)
    width = np.array(run.result["widths"], dtype=float)
    order = np.lexsort((width, capacity))
    count = len(capacity)
    with canvas() as (figure, (axes,)):
        edges = np.arange(count + 1) + 0.5
        axes.stairs(capacity[order], edges, fill=True, color="#d9dce2", label="capacity")
        size = 4.5 if count <= 100 else 1.5
        axes.plot(
            np.arange(count) + 1, width[order], "o", color=look.colour, markersize=size, label="final width"
        )
        axes.set(xlabel="client, by capacity", ylabel="width", ylim=(0, 1.04))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="x", visible=False)
        legend_below(figure, axes)
    over, full = int(np.sum(width > capacity + 1e-9)), int(np.sum(width >= capacity - 1e-9))
    title = f"{full} of {count} clients train all that they can"
    if over:
        title = f"{over} of {count} clients train more than their capacity"
    alt = f"{title}. Mean capacity {capacity.mean():.2f}, mean final width {width.mean():.2f}."
    return Plot(f"widths-{name}", title, alt, figure)


def estimate_plot(run: RunResult, name: str, audit: RunAudit) -> Plot | None:
    """Draw the final estimate against capacity and against label divergence, coloured by tier."""
    assert run.result is not None
    if (
        audit.table["r_estimate_divergence"].value is None
        and audit.table["r_estimate_capacity"].value is None
    ):
        return None
    capacity = np.array(run.partition["capacities"], dtype=float)
    divergence = np.array(run.partition["label_divergence"], dtype=float)
    estimate = np.array(run.result["estimates"], dtype=float)
    tiers = np.unique(capacity)
    colours = tier_colours([float(tier) for tier in tiers])
    size = 22 if len(capacity) <= 100 else 6
    with canvas(columns=2) as (figure, (left, right)):
        for tier in tiers:
            at = capacity == tier
            # Only tiers that a reader can tell apart get a name.
            label = f"{tier:g}" if len(tiers) <= 8 else None
            for axes, x in ((left, capacity), (right, divergence)):
                axes.scatter(x[at], estimate[at], size, color=colours[float(tier)], label=label)
        left.set(xlabel="capacity", ylabel="final estimate (1)")
        right.set(xlabel="label divergence (TV)")
        left.set_xlim(0, 1.05)
        legend_below(figure, left, "capacity")
    r = {
        column: "undefined" if cell.value is None else f"{cell.value:.2f}"
        for column, cell in audit.table.cells.items()
    }
    title = (
        f"r = {r['r_estimate_capacity']} with capacity, {r['r_estimate_divergence']} with label divergence"
    )
    alt = (
        f"Two scatter charts of the final estimate: {title}; "
        f"{r['r_estimate_divergence_given_capacity']} with label divergence given capacity."
    )
    return Plot(f"estimate-{name}", title, alt, figure, audit.sentence)
