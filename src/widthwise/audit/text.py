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


def cell_parts(cell: Correlation) -> list[str]:
    """Return the value, p-value and interval of a cell as far as they are there, or why they are not."""
    if cell.value is None:
        return [f"– ({cell.reason})"]
    p = [] if cell.p_value is None else [p_text(cell.p_value)]
    interval = [] if cell.interval is None else [interval_text(cell.interval)]
    return [f"{cell.value:+.2f}", *p, *interval]
