"""What all benchmarks share: a command line, the form of a result, timing in turn, tables.

A benchmark is a module with ``rows(options)``, which measures and yields one row of figures at a time, and
``table(document)``, which writes a result as Markdown. A result is a JSON document: ``environment`` (machine,
commit, command, versions, threads), ``bfloat16`` (whether the CPU has instructions for it), ``load`` (the
machine's before the start) and ``rows``.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from widthwise.core.device import CPU, has_bfloat16
from widthwise.engine.environment import environment
from widthwise.engine.files import write_json

Row = dict[str, Any]
Document = dict[str, Any]


def main(
    description: str | None,
    rows: Callable[[argparse.Namespace], Iterator[Row]],
    table: Callable[[Document], str],
    add_arguments: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> None:
    """Measure what the command line asks for, on one thread; print it, and write it where ``--out`` says."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--out", type=result_file, metavar="FILE.json", help="write the result there")
    parser.add_argument("--tiny", action="store_true", help="as little work as shows whether it runs")
    add_arguments(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    document = new_document()
    for row in rows(options):
        document["rows"].append(row)
        print("  ".join(f"{key} {_short(value)}" for key, value in row.items()), flush=True)
    print(table(document))
    if options.out:
        write_json(options.out, document)


def result_file(text: str) -> Path:
    """Return the path of a result, before anything is measured for it in vain."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"is {text!r}, but that folder is not there. Make it first.")
    return path


def new_document() -> Document:
    """Return a result without rows."""
    return {
        "environment": environment(),
        "bfloat16": has_bfloat16(CPU),
        "load": os.getloadavg()[0],
        "rows": [],
    }


def precisions() -> tuple[str, ...]:
    """Return the precisions that are timed: not bf16 on a CPU that emulates it, ten times as slow as fp32."""
    return ("fp32",) if has_bfloat16(CPU) is False else ("fp32", "bf16")


def with_untried(text: str, document: Document) -> str:
    """Return the text of a benchmark that times ``precisions()``, and why bf16 is missing where it is."""
    if document.get("bfloat16") is not False:
        return text
    return f"{text}\n\nbf16 was not tried: this CPU has no instructions for bfloat16."


def provenance(document: Document) -> str:
    """Return where a result comes from."""
    machine = document["environment"]
    bfloat16 = {True: ", native bfloat16", False: ", no bfloat16"}.get(document.get("bfloat16"), "")
    load = f", load {document['load']:.1f} before the start" if "load" in document else ""
    return (
        f"{machine['processor']}, {machine['cores']} cores ({machine['cpu_capability']}{bfloat16}){load}, "
        f"Python {machine['python']}, torch {machine['packages']['torch']}, commit `{machine['commit']}`, "
        f"{machine['time'].partition('T')[0]}"
    )


def in_turn(
    repeats: int,
    ways: Mapping[str, Callable[[], object]],
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Return the seconds of each way, all of them run in turn after a first run of each.

    In turn, so that a slow moment of the machine meets all alike. The clock counts the CPU time of this
    process by default, which other work on the machine disturbs least.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, way in ways.items():
            start = clock()
            way()
            if repeat:
                seconds[name].append(clock() - start)
    return seconds


def grid(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    ruled = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in ruled)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
