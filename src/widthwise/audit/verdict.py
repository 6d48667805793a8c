"""What the numbers of an audit mean, in plain words computed from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import bdtrc

from widthwise.audit.power import ALPHA
from widthwise.audit.table import CAPACITY, DATA, MARGINAL, AuditTable, Correlation
from widthwise.audit.text import p_text, runs_text

NOT_DATA = "do not read it as data heterogeneity"
WITHIN_TIERS = "compare clients only within a capacity tier"
WRONG_SIGN = f"the wrong sign for a measure of data heterogeneity, so {NOT_DATA}"
MISSED = "would have been missed more often than one time in five"
AT_CAPACITY = "label divergence at fixed capacity"


def is_found(cell: Correlation) -> bool:
    """Return whether a link is there at the 5 % level."""
    return cell.p_value is not None and cell.p_value <= ALPHA


def sentence(table: AuditTable, *, subject: str = "statistic", one_width: bool = False) -> str:
    """Return what one run, or several runs pooled, show, and which links could not have been seen.

    Args:
        table: The correlations.
        subject: What the statistic is.
        one_width: Whether all clients trained the same width throughout, so that capacity could not shape an
            update through the slices.
    """
    runs = "this run" if table.runs == 1 else f"these {table.runs} runs"
    marginal, capacity, data = table[MARGINAL], table[CAPACITY], table[DATA]
    if marginal.value is None:
        return f"Nothing can be said of the {subject} in {runs}: {marginal.reason}."
    if one_width or capacity.value is None:
        confound = (
            f"Capacity cannot confound {runs} (every client trained the same width)"
            if one_width
            else f"A capacity confound cannot be tested in {runs} ({capacity.reason})"
        )
        shows = f"the {subject} {_link(marginal, 'is linked with')} label divergence ({_numbers(marginal)})."
        missed = {} if is_found(marginal) else {"label divergence": marginal.detectable_r}
        return f"{confound}; {shows}{_missed(missed)}"
    start = f"{'In' if table.runs == 1 else 'Over'} {runs} the {subject} {_link(capacity, 'tracks')} capacity"
    start = f"{start} ({_numbers(capacity)})"
    missed = {} if is_found(capacity) else {"capacity": capacity.detectable_r}
    if data.value is None or data.p_value is None:
        numbers = "" if data.value is None else f"{_numbers(data)}; "
        rest = f"; its link with label divergence at fixed capacity stays open ({numbers}{data.reason})."
        return f"{start}{rest}{_missed(missed)}"
    if not is_found(data):
        missed[AT_CAPACITY] = data.detectable_r
    end = _given_capacity(capacity, data)
    return f"{start} and {end}.{_missed(missed)}{_by_ranks(data, table.spearman[DATA])}"


def sentence_over_runs(tables: Sequence[AuditTable], one_width: Sequence[bool]) -> str:
    """Return what runs of several experiments show together.

    A link counts only where more runs show it at the 5 % level than chance would (binomial, 5 %). Runs in
    which all clients trained one width are left out: there, capacity cannot shape an update.

    Args:
        tables: The correlations of each run.
        one_width: For each run, whether all clients trained the same width throughout.
    """
    measured = [
        table
        for table, alike in zip(tables, one_width, strict=True)
        if not alike and table[MARGINAL].value is not None
    ]
    if not measured:
        return (
            f"There is nothing to audit over these {len(tables)} runs: each trained one width for all "
            "clients, or its estimate does not vary."
        )
    capacity = [table[CAPACITY] for table in measured]
    data = [table[DATA] for table in measured]
    left_out = len(tables) - len(measured)
    aside = f" ({left_out} of one width or without an estimate left out)" if left_out else ""
    signs = {_rises(cell) for cell in data if is_found(cell)}
    seen = _beyond_chance(data)
    if seen and len(signs) == 2:
        advice = "the sign of that link differs between runs, so do not rely on it"
    elif seen:
        advice = WITHIN_TIERS if signs == {True} else f"that link has {WRONG_SIGN}"
    elif _beyond_chance(capacity):
        advice = NOT_DATA
    else:
        advice = "undecided with this many clients"
    sizes = [cell.detectable_r for cell in data if cell.value is not None]
    weakest = None if None in sizes else max((size for size in sizes if size is not None), default=None)
    missed = "" if seen or not sizes else _missed({f"{AT_CAPACITY} in a single run": weakest})
    return (
        f"The update divergence is linked with capacity in {_count(capacity)} and with label divergence at "
        f"fixed capacity in {_count(data)}{aside}: {advice}.{missed}"
    )


def _beyond_chance(cells: Sequence[Correlation]) -> bool:
    # Of many runs without any link, one in twenty shows one: so few do not count.
    tested = [cell for cell in cells if cell.p_value is not None]
    count = sum(map(is_found, tested))
    return bool(tested) and float(bdtrc(count - 1, len(tested), ALPHA)) <= ALPHA + 1e-12


def _rises(cell: Correlation) -> bool:
    # The sign of what was tested: the straight line of the partial correlation may have the other one.
    return cell.tested is not None and cell.tested > 0


def _link(cell: Correlation, verb: str) -> str:
    return verb if is_found(cell) else "shows no clear link with"


def _given_capacity(capacity: Correlation, data: Correlation) -> str:
    numbers = _numbers(data)
    if is_found(data) and _rises(data):
        advice = WITHIN_TIERS if is_found(capacity) else "it carries a data signal"
        return f"rises with label divergence once capacity is held fixed ({numbers}): {advice}"
    if is_found(data):
        return f"falls with label divergence once capacity is held fixed ({numbers}), {WRONG_SIGN}"
    none = f"no link with label divergence was found once capacity is held fixed ({numbers})"
    return f"{none}: {NOT_DATA if is_found(capacity) else f'undecided at {data.clients} clients'}"


def _missed(sizes: dict[str, float | None]) -> str:
    """Return, for each link that was not found, which sizes of it could not have been relied on to show."""
    reached = [f"than r = {size:.2f} with {what}" for what, size in sizes.items() if size is not None]
    comma = "," if len(reached) > 1 else ""
    weaker = f" A link weaker {', or '.join(reached)}{comma} {MISSED}." if reached else ""
    never = " or ".join(what for what, size in sizes.items() if size is None)
    none = f" With so few clients to exchange, not even a perfect link with {never} could have been found."
    return weaker + (none if never else "")


def _by_ranks(numbers: Correlation, ranked: Correlation) -> str:
    if ranked.p_value is None or is_found(numbers) == is_found(ranked):
        return ""
    verb = "is found" if is_found(ranked) else "is not found"
    return f" By ranks (Spearman) that link {verb} ({_numbers(ranked)})."


def _count(cells: Sequence[Correlation]) -> str:
    values = [cell.value for cell in cells if cell.value is not None]
    mean = f" (mean r = {np.mean(values):.2f})" if values else ""
    return f"{sum(map(is_found, cells))} of {len(cells)} runs{mean}"


def _numbers(cell: Correlation) -> str:
    parts = [f"{'mean r' if cell.runs > 1 else 'r'} = {cell.value:.2f}"]
    if cell.p_value is not None:
        parts.append(p_text(cell.p_value))
    if cell.run_interval is not None:
        low, high = cell.run_interval
        parts.append(f"95 % interval over {runs_text(cell)} {low:.2f} to {high:.2f}")
    elif cell.interval is not None:
        parts.append(f"95 % interval {cell.interval[0]:.2f} to {cell.interval[1]:.2f}")
    if cell.left_out and cell.run_interval is None:
        parts.append(f"in {runs_text(cell)}")
    return ", ".join(parts)
