"""What the numbers of an audit mean, in one sentence computed from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import binom

from widthwise.audit.table import AuditTable, Correlation

ALPHA = 0.05
NOT_DATA = "do not read it as data heterogeneity"
WITHIN_TIERS = "compare clients only within a capacity tier"
WRONG_SIGN = f"the wrong sign for a measure of data heterogeneity, so {NOT_DATA}"


def is_found(cell: Correlation) -> bool:
    """Return whether a link is there at the 5 % level."""
    return cell.p_value is not None and cell.p_value <= ALPHA


def sentence(table: AuditTable, *, one_width: bool = False) -> str:
    """Return what one run shows.

    Args:
        table: The run's correlations.
        one_width: Whether all clients trained the same width throughout, so that capacity could not shape an
            update through the slices.
    """
    marginal = table["r_estimate_divergence"]
    capacity = table["r_estimate_capacity"]
    data = table["r_estimate_divergence_given_capacity"]
    if marginal.value is None:
        return f"Nothing can be said of the update divergence in this run: {marginal.reason}."
    if one_width or capacity.value is None:
        why = "every client trained the same width" if one_width else capacity.reason
        shows = "is linked" if is_found(marginal) else "shows no clear link"
        return (
            f"Capacity cannot confound this run ({why}); the update divergence {shows} with label divergence "
            f"({_numbers(marginal)})."
        )
    start = f"In this run the update divergence {_capacity(capacity)}"
    if data.value is None or data.p_value is None:
        numbers = "" if data.value is None else f"{_numbers(data)}; "
        return (
            f"{start}; its link with label divergence at fixed capacity stays open ({numbers}{data.reason})."
        )
    return f"{start} and {_given_capacity(capacity, data, table.clients)}."


def sentence_over_runs(tables: Sequence[AuditTable], one_width: Sequence[bool]) -> str:
    """Return what several runs show together.

    A link counts only where more runs show it at the 5 % level than chance would (binomial, 5 %). Runs in
    which all clients trained one width are left out: there, capacity cannot shape an update.

    Args:
        tables: The correlations of each run.
        one_width: For each run, whether all clients trained the same width throughout.
    """
    measured = [
        table
        for table, alike in zip(tables, one_width, strict=True)
        if not alike and table["r_estimate_divergence"].value is not None
    ]
    if not measured:
        return (
            f"There is nothing to audit over these {len(tables)} runs: each trained one width for all "
            "clients, or its estimate does not vary."
        )
    capacity = [table["r_estimate_capacity"] for table in measured]
    data = [table["r_estimate_divergence_given_capacity"] for table in measured]
    left_out = len(tables) - len(measured)
    aside = f" ({left_out} of one width or without an estimate left out)" if left_out else ""
    signs = {bool((cell.value or 0) > 0) for cell in data if is_found(cell)}
    if _beyond_chance(data) and len(signs) == 2:
        advice = "the sign of that link differs between runs, so do not rely on it"
    elif _beyond_chance(data):
        advice = WITHIN_TIERS if signs == {True} else f"that link has {WRONG_SIGN}"
    elif _beyond_chance(capacity):
        advice = NOT_DATA
    else:
        advice = "undecided with this many clients"
    return (
        f"The update divergence is linked with capacity in {_count(capacity)} and with label divergence at "
        f"fixed capacity in {_count(data)}{aside}: {advice}."
    )


def _beyond_chance(cells: Sequence[Correlation]) -> bool:
    # Of many runs without any link, one in twenty shows one: so few do not count.
    tested = [cell for cell in cells if cell.p_value is not None]
    count = sum(map(is_found, tested))
    return bool(tested) and float(binom.sf(count - 1, len(tested), ALPHA)) <= ALPHA + 1e-12


def _capacity(cell: Correlation) -> str:
    return f"{'tracks' if is_found(cell) else 'shows no clear link with'} capacity ({_numbers(cell)})"


def _given_capacity(capacity: Correlation, data: Correlation, clients: int) -> str:
    numbers = _numbers(data)
    if is_found(data) and (data.value or 0) > 0:
        advice = WITHIN_TIERS if is_found(capacity) else "it carries a data signal"
        return f"rises with label divergence once capacity is held fixed ({numbers}): {advice}"
    if is_found(data):
        return f"falls with label divergence once capacity is held fixed ({numbers}), {WRONG_SIGN}"
    if is_found(capacity):
        return f"shows no link with label divergence once capacity is held fixed ({numbers}): {NOT_DATA}"
    return (
        f"none with label divergence once capacity is held fixed ({numbers}): undecided at {clients} clients"
    )


def _count(cells: Sequence[Correlation]) -> str:
    values = [cell.value for cell in cells if cell.value is not None]
    mean = f" (mean r = {np.mean(values):.2f})" if values else ""
    return f"{sum(map(is_found, cells))} of {len(cells)} runs{mean}"


def _numbers(cell: Correlation) -> str:
    parts = [f"r = {cell.value:.2f}"]
    if cell.p_value is not None:
        parts.append("p < 0.001" if cell.p_value < 1e-3 else f"p = {cell.p_value:.2g}")
    if cell.interval is not None:
        parts.append(f"95 % interval {cell.interval[0]:.2f} to {cell.interval[1]:.2f}")
    return ", ".join(parts)
