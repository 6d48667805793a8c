"""The audit of a CSV file of clients, made by any framework."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TextIO

from widthwise.audit.clients import Clients
from widthwise.audit.confound import AuditReport, Case, assemble
from widthwise.core.errors import DataError

NEEDED = ("client", "statistic", "capacity", "divergence")
KEYS = ("run", "seed")
LABELS = ("client", *KEYS)
#: What is read as a whole number, so that 1 and 01 are one seed.
WHOLE = re.compile("[0-9]{1,18}")
MIN_CLIENTS = 4

Row = Mapping[str, str]


def audit_csv(
    path: Path | str, *, permutations: int = 9_999, bootstrap: int = 2_000, seed: int = 0
) -> AuditReport:
    """Audit a client statistic that was computed elsewhere.

    Args:
        path: CSV file with a header and one row per client: ``client`` (any name), ``statistic``,
            ``capacity``, ``divergence`` (numbers), and where wanted ``width`` (a number), ``run``, ``seed``.
            Rows of different ``run`` or ``seed`` are runs of one experiment and are also audited together.
            Other columns are ignored. Names of columns are taken in capitals or not, all else as it stands.
        permutations: Arrangements that each permutation test may look at.
        bootstrap: Bootstrap resamples.
        seed: Root of the random arrangements and resamples.

    Returns:
        The report, as of ``audit``; its experiment is called like the file.

    Raises:
        DataError: if the file cannot be read, lacks a column, holds a cell that is no finite number or a
            client twice, or a run has fewer than 4 clients.
        InputError: if no resamples are asked for.
    """
    file = Path(path)
    cases = [_case(file, key, rows) for key, rows in _runs(file, _read(file)).items()]
    return assemble(cases, "statistic", permutations=permutations, bootstrap=bootstrap, seed=seed)


def _read(file: Path) -> dict[int, Row]:
    """Return line number -> cells by column."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            lines = dict(_lines(file, stream))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(
            f"table {str(file)!r} cannot be read ({why}), but it must be a CSV file in UTF-8. "
            "Name another file."
        ) from error
    names = lines.pop(next(iter(lines), 0), [])
    head = [name.lower() for name in names]
    missing = [column for column in NEEDED if column not in head]
    if missing:
        raise DataError(
            f"table {str(file)!r} has the columns {', '.join(names) or 'none'}, but {', '.join(missing)} "
            f"must be there too. Name the columns {', '.join(NEEDED)} in the first line, separated by commas."
        )
    wanted = (*NEEDED, "width", *KEYS)
    twice = [column for column in wanted if head.count(column) > 1]
    if twice:
        raise DataError(
            f"table {str(file)!r} has the column {twice[0]} {head.count(twice[0])} times, but no two columns "
            "may share a name, in capitals or not. Rename one."
        )
    for number, cells in lines.items():
        if len(cells) != len(head):
            raise DataError(
                f"line {number} of table {str(file)!r} is of {len(cells)} cells, but the first line names "
                f"{len(head)} columns. Mend the line."
            )
    return {
        number: {name: cell for name, cell in zip(head, cells, strict=True) if name in wanted}
        for number, cells in lines.items()
    }


def _lines(file: Path, stream: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of every line that has a filled one, and the number of the line they begin on."""
    reader = csv.reader(stream, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            cells = [cell.strip() for cell in next(reader)]
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(
                f"line {number} of table {str(file)!r} cannot be read ({error}), but a quotation mark that "
                "is opened must be closed at the end of its cell. Mend the line."
            ) from error
        if any(cells):
            yield number, cells


def _runs(file: Path, lines: Mapping[int, Row]) -> dict[tuple[str, ...], dict[int, Row]]:
    """Return the lines of each run, in order of first appearance."""
    found: dict[tuple[str, ...], dict[int, Row]] = {}
    for number, row in lines.items():
        for name in LABELS:
            if row.get(name) == "":
                raise DataError(
                    f"{name} is '' on line {number} of table {str(file)!r}, but every {name} needs a name. "
                    "Fill the cell."
                )
        key = tuple(_whole(row[key]) for key in KEYS if key in row)
        found.setdefault(key, {})[number] = row
    for key, rows in found.items() or [((), {})]:
        seen: dict[str, int] = {}
        for number, row in rows.items():
            client = row["client"]
            if client in seen:
                raise DataError(
                    f"client {client!r}{_of(key)} is on lines {seen[client]} and {number} of table "
                    f"{str(file)!r}, but a client has one line per run. Remove one, or tell runs apart by a "
                    "column run or seed."
                )
            seen[client] = number
        if len(rows) < MIN_CLIENTS:
            raise DataError(
                f"the number of clients{_of(key)} in table {str(file)!r} is {len(rows)}, but correlations at "
                f"fixed capacity need at least {MIN_CLIENTS}. Add clients."
            )
    return found


def _whole(cell: str) -> str:
    return str(int(cell)) if WHOLE.fullmatch(cell) else cell


def _of(key: Sequence[str]) -> str:
    return f" of run {' '.join(key)!r}" if key else ""


def _case(file: Path, key: tuple[str, ...], lines: Mapping[int, Row]) -> Case:
    def column(name: str) -> list[float]:
        return [_number(file, line, name, row[name]) for line, row in lines.items()]

    told = " ".join(key)
    width = column("width") if all("width" in row for row in lines.values()) else None
    return Case(
        run=file.stem,
        seed=int(told) if WHOLE.fullmatch(told) else told or None,
        method=None,
        clients=Clients(column("statistic"), column("capacity"), column("divergence"), width),
        one_width=width is not None and len(set(width)) == 1,
    )


def _number(file: Path, line: int, column: str, cell: str) -> float:
    try:
        value = float(cell.replace("_", "?"))  # Python would read 1_5 as 15
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise DataError(
            f"{column} is {cell!r} on line {line} of table {str(file)!r}, but it must be a finite number. "
            "Mend the cell, or leave the client out."
        )
    return value
