"""The table of a measurement file.

    python -m benchmarks.peers.table FILE.json ...

writes it into docs/performance.md, between its two markers.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
HEADER = (
    "peer",
    "precision",
    "processes x threads",
    "samples/s",
    "range",
    "to the fastest",
    "to bare",
    "ms a client",
    "peak MiB",
    "loss",
)


def faults(rows: Iterable[dict[str, Any]], expected: dict[str, int], overhead: bool) -> list[str]:
    """Return what is wrong with measurements: samples that were not trained, models that did not learn.

    Args:
        rows: The measurements.
        expected: Samples that must have been trained in the timed rounds of each setting.
        overhead: Whether clients had one sample each, from which a model need not learn.
    """
    found = []
    for row in rows:
        name = f"{row['setting']} {row['peer']} {row['processes']}x{row['threads']} {row['precision']}"
        if "error" in row:
            found.append(f"{name}: {row['error']}")
            continue
        if row["samples"] != expected[row["setting"]]:
            found.append(f"{name}: trained {row['samples']} samples instead of {expected[row['setting']]}")
        if not row["moved"] > 0:
            found.append(f"{name}: no parameter moved")
        if not overhead and not row["loss_after"] < row["loss_before"]:
            found.append(f"{name}: the loss went from {row['loss_before']:.3f} to {row['loss_after']:.3f}")
    return found


def best(rows: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return, for each setting, peer and precision, the repeats of the variant with the best median speed."""
    groups: dict[tuple[Any, ...], dict[tuple[int, int], list[dict[str, Any]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        if "error" not in row:
            key = row["setting"], row["peer"], row["precision"]
            groups[key][row["processes"], row["threads"]].append(row)
    return [max(variants.values(), key=_speed) for variants in groups.values()]


def _speed(repeats: list[dict[str, Any]]) -> float:
    return statistics.median(row["samples_per_second"] for row in repeats)


def table(document: dict[str, Any]) -> str:
    """Return the Markdown tables of a measurement, one for each setting, the fastest first."""
    chosen, lines = best(document["rows"]), []
    for name, what in document["settings"].items():
        here = sorted((r for r in chosen if r[0]["setting"] == name), key=_speed, reverse=True)
        if not here:
            continue
        bare = max((_speed(r) for r in here if r[0]["peer"] == "bare"), default=float("nan"))
        lines += ["", f"**{name}**: {what}{', one sample a client' if document['overhead'] else ''}.", ""]
        lines += [_line(HEADER), _line("---" for _ in HEADER)]
        for repeats in here:
            row, speeds = repeats[0], [r["samples_per_second"] for r in repeats]
            lines.append(
                _line(
                    (
                        row["peer"],
                        row["precision"],
                        f"{row['processes']} x {row['threads']}",
                        f"{_speed(repeats):,.0f}",
                        f"{min(speeds):,.0f}–{max(speeds):,.0f}",
                        f"{_speed(repeats) / _speed(here[0]):.2f}",
                        f"{_speed(repeats) / bare:.2f}",
                        f"{1e3 * statistics.median(r['seconds'] for r in repeats) / row['clients']:.3g}",
                        f"{max(r['peak_mib'] for r in repeats):,.0f}",
                        f"{row['loss_before']:.2f} → {row['loss_after']:.2f}",
                    )
                )
            )
    return "\n".join(lines[1:])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def provenance(document: dict[str, Any]) -> str:
    """Return where and with which versions a measurement was made."""
    machine, versions = document["environment"], {}
    if document["heterofl"]:
        versions["heterofl"] = document["heterofl"][:12]
    for row in document["rows"]:
        versions.update(row.get("versions", {}))
    return (
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}, commit "
        f"`{machine['commit']}`; {', '.join(f'{k} {v}' for k, v in sorted(versions.items()))}; "
        f"{document['repeats']} repeats in turn, medians."
    )


def write(page: Path, files: Iterable[Path]) -> None:
    """Put the tables of measurement files between the markers of a page."""
    documents = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    body = "\n\n".join(f"{provenance(document)}\n\n{table(document)}" for document in documents)
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write(PAGE, map(Path, sys.argv[1:]))
