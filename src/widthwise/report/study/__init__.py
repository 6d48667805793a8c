"""The report of a study: a paper's tables and figures beside ours, and its claims with verdicts."""

from __future__ import annotations

from widthwise.report.study.page import build_study_report

__all__ = ["build_study_report"]
