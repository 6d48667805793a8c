"""The page of the table, and the figures beside it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from .examine import COHORT, WIDTHS, Row

PAGE, FIGURES = "compatibility.md", "compatibility.json"

_INTRO = """# Which models can be sliced

{counts}. Every model is built at a small random configuration by
the class that its users call, and handed to `widthwise.trace` as it is. This page is written by

```console
$ make compatibility
```

with torch {torch}, transformers {transformers}, commit {commit}, {date}.
`python -m benchmarks.compatibility NAME ...` examines some of them anew. All figures are in
[{figures}]({figures}).

## What *works* means

* `trace` accepts the model, its own check included: outputs, buffers and gradients of the full width in both
  modes and for other batch sizes, and the masked model at half width.
* The sub-model of full width returns the same bits as the model, in evaluation and in training.
* The sub-models of width {widths} run forward and backward and take a step of SGD.
* One federated round of two clients, of width {cohort}: the new global model is the mean, weighted by
  examples, of the clients that hold a coordinate, and the old value where nobody does. A plain formula on
  masks must agree.
* The channels of every group can be put into another order, in all parameters at once, and the model
  computes the same. This finds wrong couplings without the tracer's own reasoning. It is not asked of models
  with a group norm, which normalises neighbours.

What fails one of these is *wrong*, and the command fails with it. *Refused* is what a `TraceError` stops
before anything is trained.

Columns: parameters of the full model; channel groups; CPU seconds of `trace`; share of the parameters in the
sub-models of width {widths} (vocabularies and what is wired to inputs and outputs are never cut, so
models this narrow keep more than the square of the width); and whether the leading dimensions inside each
head can be cut in place of whole heads (`heads="inside"`: *same* where no axis is regrouped into heads).
"""


def write(rows: Sequence[Row], folder: Path, environment: Mapping[str, Any]) -> None:
    """Write the page and the figures into a folder."""
    lines = ",\n".join(json.dumps(asdict(row)) for row in rows)
    (folder / FIGURES).write_text(
        f'{{"environment": {json.dumps(environment, indent=1)},\n"rows": [\n{lines}\n]}}\n', encoding="utf-8"
    )
    (folder / PAGE).write_text(_intro(rows, environment) + tables(rows), encoding="utf-8")


def read(folder: Path) -> list[Row]:
    """Return the rows whose figures lie in a folder."""
    stored = json.loads((folder / FIGURES).read_text(encoding="utf-8"))["rows"]
    return [Row(**{**row, "shares": row["shares"] and tuple(row["shares"])}) for row in stored]


def line(row: Row) -> str:
    """Return a row as a line for a terminal."""
    figures = f"  {row.groups} groups  {row.seconds} s  {_shares(row)}" if row.groups else ""
    reason = f"  {row.reason}" if row.reason else ""
    return f"{row.result:8}{row.name}{figures}{reason}"


def tables(rows: Sequence[Row]) -> str:
    """Return one table for each family of what works, and one of what does not."""
    parts = []
    for family, members in groupby(rows, lambda row: row.family):
        parts.append(
            f"\n## {family[0].upper()}{family[1:]}\n\n| architecture | parameters | groups | trace, s | "
            f"{' / '.join(map(str, WIDTHS))} | heads inside |\n|---|---|---|---|---|---|\n"
        )
        for row in members:
            if row.result == "works":
                cells = (row.name, f"{row.parameters:,}", row.groups, row.seconds, _shares(row), row.inside)
                parts.append(f"| {' | '.join(map(str, cells))} |\n")
    parts.append("\n## Not sliced\n\n| architecture | result | why |\n|---|---|---|\n")
    parts += [
        f"| {row.name} | {row.result} | {row.reason.replace('|', chr(92) + '|')} |\n"
        for row in rows
        if row.result != "works"
    ]
    return "".join(parts)


def _shares(row: Row) -> str:
    return " / ".join(f"{share:.2f}" for share in row.shares or ())


def _intro(rows: Sequence[Row], environment: Mapping[str, Any]) -> str:
    counts = Counter(row.result for row in rows)
    names = {
        "works": "work",
        "refused": "are refused",
        "whole": "have no channel that can be cut",
        "crashed": "crash",
        "wrong": "are wrong",
    }
    said = ", ".join(f"{counts[result]} {verb}" for result, verb in names.items())
    return _INTRO.format(
        counts=f"Of {len(rows)} architectures {said}",
        torch=environment["packages"]["torch"],
        transformers=version("transformers"),
        commit=environment["commit"],
        date=environment["time"].partition("T")[0],
        figures=FIGURES,
        widths=", ".join(map(str, WIDTHS)),
        cohort=" and ".join(map(str, COHORT)),
    )
