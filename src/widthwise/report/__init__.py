"""HTML page and figures from stored runs; never trains."""

from __future__ import annotations

from widthwise.report.page import build_report
from widthwise.report.paths import report_paths
from widthwise.report.study import build_study_report

__all__ = ["build_report", "build_study_report", "report_paths"]
