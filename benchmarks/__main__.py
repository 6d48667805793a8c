"""Measures everything, each benchmark in a process of its own, and writes docs/performance.md anew.

    python -m benchmarks [NAME ...] [--tiny]

Results are made below build/benchmarks and copied to docs/results/benchmarks at the end, so that all of them
name one commit. With ``--tiny`` nothing is copied. Exit code 1: a benchmark failed; the others count.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from widthwise.core.errors import unknown_name

from . import page

ROOT = Path(__file__).parents[1]
PLACE = Path("build", "benchmarks")
NAMES = tuple(name for name in page.PARTS if name not in page.COMMANDS)


def main() -> None:
    """Run the benchmarks that the command line names; all of them if it names none."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; by default all")
    parser.add_argument("--tiny", action="store_true", help="as little work as shows whether they run")
    options = parser.parse_args()
    for name in options.names:
        if name not in NAMES:
            parser.error(unknown_name("benchmark", name, NAMES))
    (ROOT / PLACE).mkdir(parents=True, exist_ok=True)
    failed = []
    for name in options.names or NAMES:
        print(f"\n{name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", "--out", str(PLACE / f"{name}.json")]
        done = subprocess.run([*command, *(["--tiny"] if options.tiny else [])], cwd=ROOT, check=False)
        if done.returncode:
            failed.append(name)
    if not options.tiny:
        (page.DOCS / page.RESULTS).mkdir(parents=True, exist_ok=True)
        for name in set(options.names or NAMES).difference(failed):
            shutil.copyfile(ROOT / PLACE / f"{name}.json", page.DOCS / page.RESULTS / f"{name}.json")
        page.write()
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
