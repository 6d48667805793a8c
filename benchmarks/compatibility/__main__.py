"""Which architectures can be sliced? Examines all of them and writes a page and a CSV file.

    python -m benchmarks.compatibility [NAME ...]

With names, only these are examined, and nothing is written. Exit code 1: one is wrong, or crashed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from widthwise.core.errors import unknown_name
from widthwise.engine.environment import environment

from .examine import examine, faults
from .page import line, write
from .zoos import ARCHITECTURES

DOCS = Path(__file__).parents[2] / "docs"


def main() -> None:
    """Examine the architectures that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="architectures; all of them if none is named"
    )
    names = parser.parse_args().names
    for name in names:
        if name not in ARCHITECTURES:
            parser.error(unknown_name("architecture", name, ARCHITECTURES))
    torch.set_num_threads(1)  # these models are small
    rows = []
    for name in names or ARCHITECTURES:
        rows.append(examine(ARCHITECTURES[name]))
        print(line(rows[-1]), flush=True)
    if not names:
        write(rows, DOCS, environment())
    sys.exit(bool(faults(rows)))


if __name__ == "__main__":
    main()
