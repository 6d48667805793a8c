"""HTML page and figures from stored runs; never trains."""

from __future__ import annotations

from widthwise.report.page import build_report
from widthwise.report.paths import report_paths

__all__ = ["build_report", "report_paths"]
