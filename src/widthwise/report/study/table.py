"""A table of the report of a study, and how it is written as CSV and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

#: Columns of every long-form CSV file of results.
RECORD = (
    "table",
    "task",
    "method",
    "quantity",
    "seed",
    "value",
    "sd",
    "n",
    "low",
    "high",
    "paper",
    "paper_sd",
    "paper_task",
    "difference",
    "state",
    "runs",
)

_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"}
_SPECIAL |= {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
_SPECIAL |= {"<": "$<$", ">": "$>$", "|": "$|$", "±": "$\\pm$", "−": "$-$", "–": "--", "→": "$\\rightarrow$"}
_SPECIAL |= {"≤": "$\\leq$", "≥": "$\\geq$", "×": "$\\times$", "⁶": "$^6$", "·": "$\\cdot$", "…": "\\ldots{}"}


@dataclass(frozen=True)
class StudyTable:
    """A table as it is shown, and the numbers behind it.

    Attributes:
        name: Name of its files.
        title: Heading.
        caption: What its cells mean.
        head: Column heads.
        rows: Cells as text; the first names the row.
        records: The numbers in long form, the columns of the CSV file.
        groups: Heads that span several columns, as (text, number of columns); empty without.
        row_heads: How many leading columns name the row; equal ones below each other are shown once.
        links: For each row the folder that its first cell leads to, relative to the page; empty without.
    """

    name: str
    title: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    records: tuple[Mapping[str, Any], ...]
    groups: tuple[tuple[str, int], ...] = ()
    row_heads: int = 1
    links: tuple[str, ...] = ()

    def spans(self) -> list[tuple[int, ...]]:
        """Return for each row how many rows each of its leading cells covers; 0 where one above covers it."""
        keys = [row[: self.row_heads] for row in self.rows]
        found: list[tuple[int, ...]] = []
        for i, key in enumerate(keys):
            spans: list[int] = []
            for column in range(1, self.row_heads + 1):
                if i and keys[i - 1][:column] == key[:column]:
                    spans.append(0)
                    continue
                below = (n for n, other in enumerate(keys[i:]) if other[:column] != key[:column])
                spans.append(next(below, len(keys) - i))
            found.append(tuple(spans))
        return found

    def csv(self) -> str:
        """Return the records as CSV, numbers rounded to nine decimals so that no rounding noise shows."""
        columns = dict.fromkeys(key for record in self.records for key in record)
        # The folders stand last: there may be many.
        return csv_text(self.records, sorted(columns, key=lambda column: column == "runs") or list(RECORD))

    def latex(self) -> str:
        """Return the table for LaTeX with the package booktabs."""
        heads = "l" * self.row_heads + "r" * (len(self.head) - self.row_heads)
        top = []
        if self.groups:
            spans = [
                f"\\multicolumn{{{span}}}{{{'c' if text else 'l'}}}{{{latex_text(text)}}}"
                for text, span in self.groups
            ]
            top = [" & ".join(spans) + r" \\"]
        lines = [
            "% needs \\usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{latex_text(f'{self.title}. {self.caption}')}}}",
            f"\\label{{tab:{self.name}}}",
            f"\\begin{{tabular}}{{{heads}}}",
            r"\toprule",
            *top,
            " & ".join(map(latex_text, self.head)) + r" \\",
            r"\midrule",
            *(self._latex_row(row, spans) for row, spans in zip(self.rows, self.spans(), strict=True)),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def _latex_row(self, row: Sequence[str], spans: Sequence[int]) -> str:
        heads = (cell if span else "" for cell, span in zip(row, spans, strict=False))
        return " & ".join(map(latex_text, (*heads, *row[self.row_heads :]))) + r" \\"

    def save(self, folder: Path) -> None:
        """Write ``<name>.csv`` and ``<name>.tex`` into the folder."""
        (folder / f"{self.name}.csv").write_text(self.csv(), encoding="utf-8")
        (folder / f"{self.name}.tex").write_text(self.latex(), encoding="utf-8")


def csv_text(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return records as CSV with these columns; None is an empty cell."""
    rounded = [
        {key: round(value, 9) if isinstance(value, float) else value for key, value in record.items()}
        for record in records
    ]
    # Objects: a column of whole numbers must not become decimal because one of its cells is empty.
    frame = pd.DataFrame(rounded, columns=list(columns), dtype=object)
    return frame.to_csv(index=False, lineterminator="\n")


def latex_text(text: str) -> str:
    r"""Return text so that LaTeX prints it as it is.

    Characters that a standard installation cannot set become a question mark: the file must compile.

    Example:
        >>> latex_text("50 % ± 1 (a_b)")
        '50 \\% $\\pm$ 1 (a\\_b)'
    """
    escaped = "".join(_SPECIAL.get(c, c) for c in text)
    return re.sub(r"[^\x20-\x7e\u00a1-\u00ff]", "?", escaped)
