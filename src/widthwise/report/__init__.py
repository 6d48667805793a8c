"""HTML page and figures from stored runs; never trains."""

from __future__ import annotations

from widthwise.report.channel_graph import check_plot, draw_channel_graph
from widthwise.report.page import build_report
from widthwise.report.paths import report_paths
from widthwise.report.study import build_study_report

__all__ = ["build_report", "build_study_report", "check_plot", "draw_channel_graph", "report_paths"]
