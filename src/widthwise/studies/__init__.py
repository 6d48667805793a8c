"""Configurations of runs, building a run from one, and studies of many runs."""

from __future__ import annotations

from widthwise.studies.build import build, run
from widthwise.studies.config import RunConfig, load_config, merge
from widthwise.studies.control import resolve
from widthwise.studies.manifest import Manifest, ManifestWriter, PlannedCell, read_manifest
from widthwise.studies.pool import Advance, Ended, Note, RunPool
from widthwise.studies.runner import Outcome, run_study
from widthwise.studies.schemas import schema, study_schema
from widthwise.studies.study import (
    PlannedRun,
    Study,
    StudyTask,
    bundled_studies,
    load_study,
    plan,
    study_file,
)

__all__ = [
    "Advance",
    "Ended",
    "Manifest",
    "ManifestWriter",
    "Note",
    "Outcome",
    "PlannedCell",
    "PlannedRun",
    "RunConfig",
    "RunPool",
    "Study",
    "StudyTask",
    "build",
    "bundled_studies",
    "load_config",
    "load_study",
    "merge",
    "plan",
    "read_manifest",
    "resolve",
    "run",
    "run_study",
    "schema",
    "study_file",
    "study_schema",
]
