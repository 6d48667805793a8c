"""``study.json``: what a study consists of and how it was run, beside its run folders."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from widthwise.core.errors import CheckpointError
from widthwise.engine import is_run
from widthwise.engine.environment import environment
from widthwise.engine.files import FolderLock, write_json
from widthwise.studies.pool import Advance, Event
from widthwise.studies.runner import Outcome
from widthwise.studies.study import PlannedRun, Study

FILE = "study.json"


@dataclass(frozen=True)
class PlannedCell:
    """One planned run as the manifest lists it.

    Attributes:
        path: Its folder, relative to the study's.
        task: Its task's label; empty where the study has one task only.
        label: Its method's label, with the values of a sweep.
        seed: Its seed.
        error: Why it failed when it was last tried, or None.
    """

    path: str
    task: str
    label: str
    seed: int
    error: str | None = None


@dataclass(frozen=True)
class Manifest:
    """A study as its folder holds it.

    Attributes:
        folder: The study's folder.
        name: The name or the file's stem under which it was started.
        profile: The profile that was chosen, or None.
        study: Its content, profile applied.
        runs: All runs that belong to it, whether they exist or not.
        sessions: For each call that trained something: environment (command, commit, versions, machine),
            number of runs side by side, runs done, and wall-clock seconds.
    """

    folder: Path
    name: str
    profile: str | None
    study: Study
    runs: tuple[PlannedCell, ...]
    sessions: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``study.json``."""
        return {
            "name": self.name,
            "profile": self.profile,
            "study": self.study.model_dump(mode="json", exclude={"profiles"}),
            "runs": [dict(vars(run)) for run in self.runs],
            "sessions": list(self.sessions),
        }


def is_study(folder: Path) -> bool:
    """Return whether a folder is that of a study."""
    return (folder / FILE).is_file()


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a study's folder, or None where there is none.

    Raises:
        CheckpointError: if the file is damaged.
    """
    if not is_study(folder):
        return None
    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return Manifest(
            folder,
            content["name"],
            content["profile"],
            Study(**content["study"]),
            tuple(PlannedCell(**run) for run in content["runs"]),
            tuple(content["sessions"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(
            f"{FILE} in {str(folder)!r} is damaged ({reason}), but it says which runs belong to the study. "
            "Run the study again: finished runs are kept."
        ) from error


class ManifestWriter:
    """Keeps ``study.json`` up to date while the study runs; a context manager for the length of it.

    One process at a time can do so: two that run the same study would take each other's runs.

    Args:
        folder: The study's folder; created where missing.
        name: Name or file's stem of the study.
        profile: The chosen profile.
        study: The study.
        planned: Its runs.
        jobs: Number of runs side by side.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        profile: str | None,
        study: Study,
        planned: Sequence[PlannedRun],
        jobs: int,
    ) -> None:
        if is_run(folder):
            raise CheckpointError(
                f"folder of the study is {str(folder)!r}, but that is the folder of a run. "
                "Choose another --out."
            )
        self._cells = {
            run.path: PlannedCell(
                run.path.relative_to(folder).as_posix(), run.task, run.label, run.config.seed
            )
            for run in planned
        }
        self._folder, self._name, self._profile, self._study = folder, name, profile, study
        self._lock = FolderLock(folder, "folder of the study")
        self._earlier: tuple[dict[str, Any], ...] = ()
        self._begun, self._done, self._jobs = time.monotonic(), 0, jobs
        self._trained = False
        self._environment = environment()

    def __enter__(self) -> Self:
        self._lock.acquire()
        # A damaged one is made anew: what the runs are is in their own folders.
        with contextlib.suppress(CheckpointError):
            manifest = read_manifest(self._folder)
            self._earlier = manifest.sessions if manifest else ()
        self.write()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.write()
        finally:
            self._lock.release()

    def watch(self, event: Event) -> None:
        """Note that something is being trained."""
        self._trained = self._trained or isinstance(event, Advance)

    def add(self, outcome: Outcome) -> None:
        """Note what became of a run."""
        cell = self._cells[outcome.planned.path]
        self._cells[outcome.planned.path] = PlannedCell(
            cell.path, cell.task, cell.label, cell.seed, outcome.error
        )
        self._done += outcome.state == "done"
        self._trained = self._trained or outcome.state == "done"
        if outcome.state != "skipped":
            self.write()

    def write(self) -> None:
        """Write the file."""
        session = {
            "environment": self._environment,
            "jobs": self._jobs,
            "runs_done": self._done,
            "seconds": round(time.monotonic() - self._begun, 1),
        }
        sessions = (*self._earlier, *([session] if self._trained else []))
        manifest = Manifest(
            self._folder, self._name, self._profile, self._study, tuple(self._cells.values()), sessions
        )
        write_json(self._folder / FILE, manifest.to_json())
