"""What measurements of peers say: faults, the best variant of each, tables."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from ..common import Document, Row, grid, with_untried

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


def faults(rows: Iterable[Row], expected: dict[str, int], overhead: bool) -> list[str]:
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


def best(rows: Iterable[Row]) -> list[list[Row]]:
    """Return, for each setting, peer and precision, the repeats of the variant with the best median speed."""
    groups: dict[tuple[Any, ...], dict[tuple[int, int], list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if "error" not in row:
            key = row["setting"], row["peer"], row["precision"]
            groups[key][row["processes"], row["threads"]].append(row)
    return [max(variants.values(), key=speed) for variants in groups.values()]


def speed(repeats: list[Row]) -> float:
    """Return the median samples a second of the repeats of a variant."""
    return statistics.median(row["samples_per_second"] for row in repeats)


def fastest_first(document: Document, setting: str) -> list[list[Row]]:
    """Return the repeats of each peer's best variants in a setting."""
    here = (repeats for repeats in best(document["rows"]) if repeats[0]["setting"] == setting)
    return sorted(here, key=speed, reverse=True)


def table(document: Document) -> str:
    """Return the versions and the tables of a measurement, one for each setting, the fastest first."""
    parts = [with_untried(_versions(document), document)]
    for name, what in document["settings"].items():
        here = fastest_first(document, name)
        if not here:
            continue
        bare = max((speed(repeats) for repeats in here if repeats[0]["peer"] == "bare"), default=float("nan"))
        parts.append(f"**{name}**: {what}{', one sample a client' if document['overhead'] else ''}.")
        parts.append(grid(HEADER, (_cells(repeats, speed(here[0]), bare) for repeats in here)))
    return "\n\n".join(parts)


def headline(document: Document) -> str:
    """Return widthwise's speed in each setting as a multiple of the fastest other simulator's."""
    said = []
    for name in document["settings"]:
        speeds = {(v[0]["peer"], v[0]["precision"]): speed(v) for v in fastest_first(document, name)}
        others = {peer: value for (peer, _), value in speeds.items() if peer not in ("bare", "widthwise")}
        ours = {precision: value for (peer, precision), value in speeds.items() if peer == "widthwise"}
        if others and ours:
            fastest = max(others, key=others.__getitem__)
            times = ", ".join(
                f"{value / others[fastest]:.2f} in {precision}" for precision, value in sorted(ours.items())
            )
            said.append(f"{name} {times} ({fastest})")
    return f"speed as a multiple of the fastest other simulator's: {'; '.join(said)}."


def _cells(repeats: list[Row], fastest: float, bare: float) -> tuple[str, ...]:
    row, speeds = repeats[0], [r["samples_per_second"] for r in repeats]
    return (
        row["peer"],
        row["precision"],
        f"{row['processes']} x {row['threads']}",
        f"{speed(repeats):,.0f}",
        f"{min(speeds):,.0f}–{max(speeds):,.0f}",
        f"{speed(repeats) / fastest:.2f}",
        f"{speed(repeats) / bare:.2f}",
        f"{1e3 * statistics.median(r['seconds'] for r in repeats) / row['clients']:.3g}",
        f"{max(r['peak_mib'] for r in repeats):,.0f}",
        f"{row['loss_before']:.2f} → {row['loss_after']:.2f}",
    )


def _versions(document: Document) -> str:
    versions = {"heterofl": document["heterofl"][:12]} if document["heterofl"] else {}
    for row in document["rows"]:
        versions.update(row.get("versions", {}))
    listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return f"{listed}; medians of {document['repeats']} repeats in turn."
