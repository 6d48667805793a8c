"""Statistics on stored runs: what can never be trained, and whether an estimate measures data or capacity."""

from __future__ import annotations

from widthwise.audit.clients import Clients
from widthwise.audit.confound import AuditReport, PooledAudit, RunAudit
from widthwise.audit.coverage import CoverageReport, coverage
from widthwise.audit.csv_file import audit_csv
from widthwise.audit.groups import RunGroup, group_runs
from widthwise.audit.measure import audit_table, correlations_of, pooled_table
from widthwise.audit.runs import audit, clients_of
from widthwise.audit.table import AuditTable

__all__ = [
    "AuditReport",
    "AuditTable",
    "Clients",
    "CoverageReport",
    "PooledAudit",
    "RunAudit",
    "RunGroup",
    "audit",
    "audit_csv",
    "audit_table",
    "clients_of",
    "correlations_of",
    "coverage",
    "group_runs",
    "pooled_table",
]
