"""The capacity-confound audit of a study: each method's runs of all seeds together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from widthwise.audit import AuditTable, clients_of, pooled_table
from widthwise.audit.confound import POWER_NOTE
from widthwise.audit.table import COLUMNS, DATA
from widthwise.audit.text import cell_parts, detectable_text
from widthwise.report.study.cells import method_text
from widthwise.report.study.contrasts import LINK_WORDS
from widthwise.report.study.results import StudyResults
from widthwise.report.study.table import StudyTable

CAPTION = (
    "The runs of all finished seeds together. Mean over seeds of the correlation over clients; p: permutation"
    " within seeds and, given capacity, within tiers of equal capacity. 95 % intervals: Student's t over "
    "seeds, which speaks of further seeds (in the CSV file low and high), then the bootstrap over clients "
    "and seeds, which shows the clients' chance and is too short for more where few seeds differ "
    f"(bootstrap_low and bootstrap_high). {POWER_NOTE}"
)


def pooled_audit_table(results: StudyResults) -> StudyTable | None:
    """Return the audit of every method, Pearson's and Spearman's, or None where nothing was ever measured."""
    rows: list[tuple[str, ...]] = []
    records: list[dict[str, Any]] = []
    for task in results.tasks:
        for label in task.methods:
            cells = [cell for cell in results.of(task.label, label) if cell.done]
            measured = [
                cell for cell in cells if cell.run and cell.run.result and cell.run.result["estimates"]
            ]
            if not measured:
                continue
            table = pooled_table([clients_of(cell.run) for cell in measured if cell.run])
            detectable = detectable_text(table[DATA])
            for kind, correlations in (("Pearson", table.pearson), ("Spearman", table.spearman)):
                texts = (" ".join(cell_parts(correlations[column])) for column in COLUMNS)
                name = method_text(results, task.label, label)
                rows.append((task.title, name, kind, str(len(measured)), *texts, detectable))
            runs = " ".join(cell.path for cell in measured)
            records += _records({"task": task.title, "method": label}, table, runs)
    if not rows:
        return None
    head = ("task", "method", "kind", "seeds", *(LINK_WORDS[column] for column in COLUMNS), "detectable r")
    title = "The audit over all seeds"
    return StudyTable("pooled-audit", title, CAPTION, head, tuple(rows), tuple(records), row_heads=2)


def _records(key: Mapping[str, Any], table: AuditTable, runs: str) -> list[dict[str, Any]]:
    records = []
    for kind, correlations in (("pearson", table.pearson), ("spearman", table.spearman)):
        for column in COLUMNS:
            cell = correlations[column]
            low, high = cell.run_interval or (None, None)
            bootstrap_low, bootstrap_high = cell.interval or (None, None)
            records.append(
                {
                    "table": "pooled-audit",
                    **key,
                    "kind": kind,
                    "quantity": LINK_WORDS[column],
                    "value": cell.value,
                    "tested": cell.tested,
                    "p_value": cell.p_value,
                    "low": low,
                    "high": high,
                    "bootstrap_low": bootstrap_low,
                    "bootstrap_high": bootstrap_high,
                    "n": cell.runs,
                    "clients": cell.clients,
                    "detectable_r": cell.detectable_r,
                    "reason": cell.reason,
                    "left_out": "; ".join(cell.left_out) or None,
                    "runs": runs,
                }
            )
    return records
