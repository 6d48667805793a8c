"""How the numbers of an audit are written, wherever they are shown."""

from __future__ import annotations

from widthwise.audit.table import Correlation


def p_text(p_value: float) -> str:
    """Return a p-value as text.

    Example:
        >>> p_text(0.00042), p_text(0.0312), p_text(0.6)
        ('p < 0.001', 'p = 0.031', 'p = 0.6')
    """
    return "p < 0.001" if p_value < 1e-3 else f"p = {p_value:.2g}"


def interval_text(interval: tuple[float, float]) -> str:
    """Return an interval as text.

    Example:
        >>> interval_text((-0.714, 0.1))
        '[-0.71, +0.10]'
    """
    low, high = interval
    return f"[{low:+.2f}, {high:+.2f}]"


def runs_text(cell: Correlation) -> str:
    """Return how many runs the figures of a cell rest on: "3 runs", or "2 of 3 runs" if one is left out.

    Example:
        >>> runs_text(Correlation(0.5, strata=((7, 7), (9, 5)), left_out=("it was not measured",)))
        '2 of 3 runs'
    """
    return f"{cell.runs} of {cell.runs + len(cell.left_out)} runs" if cell.left_out else f"{cell.runs} runs"


def cell_parts(cell: Correlation) -> list[str]:
    """Return the value, p-value and intervals of a cell as far as they are there, or why they are not.

    Of pooled runs, the t interval over runs comes first and says how many runs it rests on; the bootstrap
    interval bears its name.
    """
    if cell.value is None:
        return [f"– ({cell.reason})"]
    parts = [f"{cell.value:+.2f}"]
    if cell.p_value is not None:
        parts.append(p_text(cell.p_value))
    if cell.run_interval is not None:
        parts.append(f"t over {runs_text(cell)} {interval_text(cell.run_interval)}")
    elif cell.left_out:
        parts.append(f"in {runs_text(cell)}")
    if cell.interval is not None:
        name = "bootstrap " if cell.run_interval is not None else ""
        parts.append(f"{name}{interval_text(cell.interval)}")
    return parts


def detectable_text(cell: Correlation) -> str:
    """Return the smallest detectable correlation of a cell, "none", or a dash where it is undefined."""
    if cell.value is None:
        return "–"
    return "none" if cell.detectable_r is None else f"{cell.detectable_r:.2f}"
