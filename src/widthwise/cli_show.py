"""Where the command line writes: results on stdout (a table or pure JSON), everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.table import Table

if TYPE_CHECKING:
    from widthwise.engine import RunResult

#: Width where there is no terminal whose width could be asked for.
PLAIN_WIDTH = 120


def stdout() -> Console:
    """Return a console on the current stdout."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


def stderr() -> Console:
    """Return a console on the current stderr."""
    return Console(file=sys.stderr, width=None if sys.stderr.isatty() else PLAIN_WIDTH, highlight=False)


def show(table: RenderableType, data: Any, as_json: bool) -> None:
    """Print a result on stdout: as a table, or its data as JSON and nothing else."""
    if as_json:
        print(json.dumps(data, indent=2, allow_nan=False))
    else:
        stdout().print(table)
    sys.stdout.flush()  # before anything that follows on stderr


def unmet_budgets(results: Sequence[RunResult]) -> list[str]:
    """Return a line for each matched control that could not cost what it was to cost."""
    lines = []
    for result in results:
        control = (result.result or {}).get("control")
        if control and not control["met"]:
            lines.append(
                f"{result.path.name} was to spend {control['budget']:.4g} ({control['currency']}) for each "
                f"client of a round, but its capacities allowed {control['spent']:.4g}. "
                "It is no matched control."
            )
    return lines


def results_table(results: Sequence[RunResult]) -> Table:
    """Return the table of finished runs."""
    table = Table("run", "seed", "best", "final", "mean width", "MB", "GMACs", "time", title="Results")
    for result in results:
        row: dict[str, Any] = result.result or {}
        table.add_row(
            result.name,
            str(row["seed"]),
            f"{row['best_accuracy']:.1%}",
            f"{row['final_accuracy']:.1%}",
            f"{row['mean_width']:.2f}",
            f"{(row['bytes_up'] + row['bytes_down']) / 1e6:.1f}",
            f"{row['macs'] / 1e9:,.0f}" + (" (masked)" if result.masked else ""),
            f"{row['seconds']:.0f} s",
        )
    return table
