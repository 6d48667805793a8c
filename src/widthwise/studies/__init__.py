"""Configurations of runs, building a run from one, and studies of many runs."""

from __future__ import annotations

from widthwise.studies.build import build, resolve, run
from widthwise.studies.config import RunConfig, load_config, merge, schema
from widthwise.studies.study import (
    Outcome,
    PlannedRun,
    Study,
    bundled_studies,
    load_study,
    plan,
    run_study,
)

__all__ = [
    "Outcome",
    "PlannedRun",
    "RunConfig",
    "Study",
    "build",
    "bundled_studies",
    "load_config",
    "load_study",
    "merge",
    "plan",
    "resolve",
    "run",
    "run_study",
    "schema",
]
