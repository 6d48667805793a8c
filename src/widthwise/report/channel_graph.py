"""Draw a model's channel groups: which groups the parameters connect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.patches import FancyArrowPatch

from widthwise.core.errors import InputError
from widthwise.report.style import COLOURS, canvas

FORMATS = ("pdf", "png", "svg")


def check_plot(path: Path) -> None:
    """Refuse a file that no figure can be written to.

    Raises:
        InputError: if its format is unknown or its folder does not exist.
    """
    if path.suffix.removeprefix(".") not in FORMATS:
        raise InputError(
            f"the plot is {path.name!r}, but it can be written as {', '.join(FORMATS)}. Name it so, such as "
            f"{path.stem or 'groups'}.svg."
        )
    if not path.parent.is_dir():
        raise InputError(f"the plot is {str(path)!r}, but its folder does not exist. Create it.")


def draw_channel_graph(
    sizes: Mapping[str, int], edges: Sequence[tuple[str, str, int]], path: Path, title: str = ""
) -> Path:
    """Draw channel groups in order of first use, and an arc for each pair that parameters connect.

    Args:
        sizes: Group -> number of channels.
        edges: (group, group, number of parameters); another name stands for axes that are never cut.
        path: The file; its ending says the format (pdf, png, svg).
        title: Name of the model.

    Raises:
        InputError: if the file cannot be written.
    """
    check_plot(path)
    whole = [name for pair in edges for name in pair[:2] if name not in sizes]
    place = {name: -index for index, name in enumerate([*sizes, *dict.fromkeys(whole)])}
    most = max((count for *_, count in edges), default=1)
    with canvas(size=(7.0, 1.0 + 0.28 * len(place))) as (figure, (axes,)):
        for one, other, count in edges:
            axes.add_patch(
                FancyArrowPatch(
                    (0.0, place[one]),
                    (0.0, place[other]),
                    connectionstyle="arc3,rad=0.45",
                    arrowstyle="-",
                    linewidth=0.6 + 3.0 * count / most,
                    color=COLOURS[0],
                    alpha=0.55,
                    shrinkA=5,
                    shrinkB=5,
                )
            )
        for name, y in place.items():
            group = name in sizes
            axes.plot(0.0, y, "o", color=COLOURS[0] if group else COLOURS[-1], markersize=6)
            axes.annotate(f"{name} ({sizes[name]})" if group else name, (0.04, y), va="center")
        reach = max((abs(place[a] - place[b]) for a, b, _ in edges), default=1)
        axes.set_xlim(-0.06 - 0.04 * reach, 1.0)
        axes.set_ylim(min(place.values(), default=0) - 1.0, 1.0)
        axes.set_title(f"Channel groups of {title}" if title else "Channel groups", loc="left")
        axes.axis("off")
        figure.savefig(path)
    return path
