"""Statistics on stored runs: what can never be trained, and whether an estimate measures data or capacity."""

from __future__ import annotations

from widthwise.audit.confound import AuditReport, RunAudit, audit
from widthwise.audit.coverage import CoverageReport, coverage
from widthwise.audit.groups import RunGroup, group_runs
from widthwise.audit.table import AuditTable, audit_table

__all__ = [
    "AuditReport",
    "AuditTable",
    "CoverageReport",
    "RunAudit",
    "RunGroup",
    "audit",
    "audit_table",
    "coverage",
    "group_runs",
]
