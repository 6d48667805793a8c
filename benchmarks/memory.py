"""Memory of processes, as Linux tells it below /proc."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return a process and all processes below it."""
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        children[parent].append(int(stat.parent.name))
    family = [pid]
    for member in family:
        family += children[member]
    return family


def proportional_bytes(pid: int) -> int:
    """Return the proportional set size: of a page that n processes share, each has 1/n. 0 if it has ended."""
    return _bytes(pid, "smaps_rollup", "Pss:")


def peak_bytes(pid: int) -> int:
    """Return the most resident memory that a process has had, shared pages included; 0 if it has ended.

    Not ``getrusage``: its maximum passes from a process to those it starts.
    """
    return _bytes(pid, "status", "VmHWM:")


def _bytes(pid: int, file: str, field: str) -> int:
    try:
        text = Path(f"/proc/{pid}/{file}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    lines = (line.split() for line in text.splitlines())
    return next((1024 * int(words[1]) for words in lines if words[0] == field), 0)
