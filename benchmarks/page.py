"""Writes the measured parts of docs/performance.md, and its figures, from the results below docs/results.

    python -m benchmarks.page

A part stands between two markers that bear the name of its result; the words around them are written by hand.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from widthwise.engine.files import write_text
from widthwise.report.style import Plot

from . import (
    aggregation,
    cohort,
    cost_law,
    executors,
    figures,
    hot_path,
    limits,
    overhead,
    precision,
    registered_clients,
    scaling,
    slicing,
    turn,
)
from .common import Document, provenance
from .peers import table as peers

DOCS = Path(__file__).parents[1] / "docs"
PAGE = "performance.md"
RESULTS = "results/benchmarks"
COMMANDS = {"peers": "make peers", "peers-overhead": "make peers"}


class Part(NamedTuple):
    """What the page shows of one result.

    Attributes:
        section: Heading of the page under which it stands.
        table: Its table.
        headline: Its answer in a sentence, also shown at the top of the page.
        figure: Its figure.
    """

    section: str
    table: Callable[[Document], str]
    headline: Callable[[Document], str] | None = None
    figure: Callable[[Document], Plot] | None = None


PARTS: Mapping[str, Part] = {
    "overhead": Part("The engine beside a bare loop", overhead.table, overhead.headline),
    "cost_law": Part("Time against width", cost_law.table, cost_law.headline, figures.cost_law),
    "scaling": Part("Processes", scaling.table, scaling.headline, figures.scaling),
    "executors": Part("Processes", executors.table),
    "registered_clients": Part(
        "Memory", registered_clients.table, registered_clients.headline, figures.registered_clients
    ),
    "cohort": Part("Memory", cohort.table, cohort.headline, figures.cohort),
    "aggregation": Part("Averaging", aggregation.table, aggregation.headline),
    "hot_path": Part("Parts of a step", hot_path.table),
    "slicing": Part("Tracing and extraction", slicing.table),
    "peers": Part("Against other simulators", peers.table, peers.headline, figures.peers),
    "peers-overhead": Part("Against other simulators", peers.table),
    "limits": Part("What bounds the speed", limits.table),
    "turn": Part("What bounds the speed", turn.table),
}


def texts(docs: Path) -> dict[str, str]:
    """Return the text of every part, for the page in a folder of documentation."""
    return {
        "summary": _summary(docs),
        **{name: _text(docs, name, part) for name, part in PARTS.items()},
        "precision": precision.table(docs / "results" / "precision" / "results.csv"),
    }


def _read(docs: Path, name: str) -> Document | None:
    file = docs / RESULTS / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _summary(docs: Path) -> str:
    lines = []
    for name, part in PARTS.items():
        document = _read(docs, name)
        if part.headline and document:
            anchor = part.section.lower().replace(" ", "-")
            lines.append(f"* [{part.section}](#{anchor}): {part.headline(document)}")
    return "\n".join(lines)


def _text(docs: Path, name: str, part: Part) -> str:
    document = _read(docs, name)
    if document is None:
        return f"*Not measured yet: `{COMMANDS.get(name, f'python -m benchmarks {name}')}`.*"
    shown = []
    if part.figure:
        plot = part.figure(document)
        width, height = figures.size_of(plot.figure)
        size = f'width="{width}" height="{height}"'
        shown.append(f'<img src="{RESULTS}/{name}.svg" {size} alt="{html.escape(plot.alt)}">')
    shown += [
        part.table(document),
        f"[Figures]({RESULTS}/{name}.json): {provenance(document)}.",
    ]
    return "\n\n".join(shown)


def drawings(docs: Path) -> dict[str, str]:
    """Return the file of every figure by the name of its result; it ends with the hash of that result."""
    drawn = {}
    for name, part in PARTS.items():
        document = _read(docs, name)
        if part.figure and document:
            note = source_note(docs / RESULTS / f"{name}.json")
            drawn[name] = f"{part.figure(document).svg().rstrip()}\n{note}\n"
    return drawn


def source_note(result: Path) -> str:
    """Return the line that ties a figure to the result that it was drawn from."""
    return f"<!-- {result.name} sha256 {hashlib.sha256(result.read_bytes()).hexdigest()} -->"


def filled(page: str, parts: Mapping[str, str]) -> str:
    """Return the page with each part between its markers.

    Raises:
        ValueError: if the page does not have the markers of each part once, and no others.
    """
    found = re.findall(r"<!-- ([\w-]+): begin -->\n(?:.*?\n)?<!-- \1: end -->", page, re.S)
    if sorted(found) != sorted(parts):
        raise ValueError(
            f"the page has markers for {sorted(found)}, but the parts are {sorted(parts)}. "
            "Add or remove '<!-- NAME: begin -->' and '<!-- NAME: end -->'."
        )
    return re.sub(
        r"(<!-- ([\w-]+): begin -->\n).*?(<!-- \2: end -->)",
        lambda match: f"{match[1]}\n{parts[match[2]]}\n\n{match[3]}",
        page,
        flags=re.S,
    )


def write(docs: Path = DOCS) -> None:
    """Write the page and its figures."""
    for name, drawing in drawings(docs).items():
        write_text(docs / RESULTS / f"{name}.svg", drawing)
    page = docs / PAGE
    write_text(page, filled(page.read_text(encoding="utf-8"), texts(docs)))


if __name__ == "__main__":
    write()
