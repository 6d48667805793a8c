"""Where the command line writes: results on stdout (a table or pure JSON), everything else on stderr."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console, RenderableType

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
