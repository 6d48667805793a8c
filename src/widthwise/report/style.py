"""How figures look: one colour per experiment, quiet axes, and export as inline SVG and PDF."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

#: Okabe and Ito's colours, which stay apart for colour-blind readers, without the two that are pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

#: Typed loosely: the names that matplotlib knows differ between its versions.
_RC: dict[Any, Any] = {
    "font.size": 9.5,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8f98",
    "axes.labelcolor": "#30343b",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e8ec",
    "grid.linewidth": 0.8,
    "xtick.color": "#555b66",
    "ytick.color": "#555b66",
    "lines.linewidth": 1.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    # Text stays text: the page stays small, searchable and readable to screen readers.
    "svg.fonttype": "none",
    # Labels come from files: a dollar sign in one is not a formula.
    "text.parse_math": False,
    # A fixed salt keeps the ids inside a figure, and so the whole page, the same on every call.
    "svg.hashsalt": "widthwise",
}


@dataclass(frozen=True)
class Look:
    """How one experiment is drawn in every figure."""

    colour: str
    line: str
    marker: str


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """Return a distinct look for each label; lines and marks change when the colours are used up."""
    count = len(COLOURS)
    return {
        label: Look(COLOURS[i % count], LINES[i // count % len(LINES)], MARKERS[(i + i // count) % count])
        for i, label in enumerate(labels)
    }


def tier_colours(tiers: Sequence[float]) -> dict[float, str]:
    """Return a colour for each tier on one dark-to-light scale, so that their order can be seen."""
    scale = mpl.colormaps["viridis"]
    steps = max(1, len(tiers) - 1)
    return {tier: to_hex(scale(0.85 * i / steps)) for i, tier in enumerate(sorted(tiers))}


@dataclass(frozen=True)
class Plot:
    """A drawn figure.

    Attributes:
        name: File name without extension, also the prefix of the ids inside the SVG.
        title: What is seen, in a few words.
        alt: The same for readers who do not see it, with the numbers that matter.
        figure: The figure.
        note: A remark below the figure.
    """

    name: str
    title: str
    alt: str
    figure: Figure
    note: str = ""

    def svg(self) -> str:
        """Return the figure as an ``<svg>`` element that scales with its box."""
        buffer = io.StringIO()
        with mpl.rc_context(_RC):
            self.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        text = buffer.getvalue()
        body = text[text.index("<svg") :]
        body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
        head = re.sub(r' (?:width|height)="[^"]*"', "", body[: body.index(">")])
        # Several figures share one page: without a prefix their ids would collide.
        rest = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{self.name}-", body[body.index(">") :])
        return head + ' aria-hidden="true" focusable="false"' + rest

    def save_pdf(self, folder: Path) -> Path:
        """Write the figure as a PDF into the folder and return its path."""
        path = folder / f"{self.name}.pdf"
        with mpl.rc_context(_RC):
            self.figure.savefig(path, metadata={"CreationDate": None, "Creator": None, "Producer": None})
        return path


@contextmanager
def canvas(
    columns: int = 1, rows: int = 1, size: tuple[float, float] = (4.5, 2.7), share_y: bool = True
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield an empty figure, by default of the page's width, and its axes row by row, in the page's style."""
    with mpl.rc_context(_RC):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharey=share_y)
        yield figure, list(axes.flat)


def legend_below(figure: Figure, axes: Axes | Sequence[Axes], title: str | None = None) -> None:
    """Put one legend under the figure, which grows by the rows that it needs; each label of the axes once."""
    handles: dict[str, Any] = {}
    for panel in [axes] if isinstance(axes, Axes) else axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        longest = max(map(len, handles))
        room = 56 * figure.get_figwidth() / 4.5
        columns = min(len(handles), max(1, int(room // (longest + 4))))
        figure.set_figheight(figure.get_figheight() + 0.17 * -(-len(handles) // columns))
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=columns, title=title
        )
