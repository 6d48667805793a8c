"""How fast are federated simulators on the same work? Samples trained a second, and peak memory.

    python -m benchmarks.peers [--settings A,B,C] [--peers bare,widthwise,flower,pfl,heterofl] [--repeats 3]
                               [--overhead] [--heterofl PATH] [--out FILE.json]

Each peer runs in a child process, with an environment of its own below .peers/. In the first repeat all of
its variants (processes x threads) run, afterwards the one that was fastest. Exit code 1: a peer failed, or
did not do the work.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from widthwise.engine.files import write_json

from ..common import new_document, precisions, result_file
from .runner import PEERS, Variant, commit_of, heterofl_checkout, measure, python_of
from .table import best, faults, table
from .work import SETTINGS, overhead


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--settings", type=_names(SETTINGS), default=list(SETTINGS), metavar="A,B,C")
    parser.add_argument("--peers", type=_names(PEERS), default=list(PEERS), metavar=",".join(PEERS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--overhead", action="store_true", help="one sample for each client")
    parser.add_argument("--heterofl", type=Path, help="checkout of HeteroFL's repository; else it is cloned")
    parser.add_argument("--out", type=result_file, metavar="FILE.json", help="write all measurements there")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # no peer outlives this process
    pythons = {peer: python_of(peer) for peer in options.peers}
    checkout = None
    if "heterofl" in options.peers:
        checkout = (options.heterofl or heterofl_checkout()).resolve()
    document = {
        **new_document(),
        "heterofl": commit_of(checkout) if checkout else None,
        "overhead": options.overhead,
        "repeats": options.repeats,
        "settings": {name: SETTINGS[name].what for name in options.settings},
    }
    rows = document["rows"]
    for repeat in range(options.repeats):
        for setting in options.settings:
            for peer in options.peers:
                for variant in _variants(peer, setting, rows if repeat else None):
                    row = measure(
                        peer, pythons[peer], setting, variant, options.overhead, str(checkout or "")
                    )
                    rows.append({**row, "repeat": repeat})
                    print(_progress(rows[-1]), flush=True)
    if options.out:
        write_json(options.out, document)
    print(table(document))
    used = {name: overhead(SETTINGS[name]) if options.overhead else SETTINGS[name] for name in SETTINGS}
    expected = {name: s.cohort * s.samples * s.rounds for name, s in used.items()}
    wrong = faults(rows, expected, options.overhead)
    print("\n".join(wrong), file=sys.stderr)
    sys.exit(1 if wrong else 0)


def _names(known: dict[str, Any]) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


def _variants(peer: str, setting: str, rows: list[dict[str, Any]] | None) -> list[Variant]:
    """Return what a peer tries: at first all that the CPU can do, then what was fastest at each precision."""
    if len(SETTINGS[setting].widths) > 1 and not PEERS[peer].slices:
        return []
    if rows is None:
        return [variant for variant in PEERS[peer].variants if variant.precision in precisions()]
    chosen = [r[0] for r in best(rows) if r[0]["setting"] == setting and r[0]["peer"] == peer]
    return [Variant(row["processes"], row["threads"], row["precision"]) for row in chosen]


def _progress(row: dict[str, Any]) -> str:
    name = f"{row['setting']} {row['peer']:9} {row['processes']}x{row['threads']} {row['precision']}"
    if "error" in row:
        return f"{name}  {row['error']}"
    return f"{name}  {row['samples_per_second']:8,.0f} samples/s  {row['peak_mib']:6,.0f} MiB"


if __name__ == "__main__":
    main()
