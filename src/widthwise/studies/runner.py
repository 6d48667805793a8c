"""Running a study: what is left to do, several runs at once, and what became of each."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from widthwise.core.errors import WidthwiseError
from widthwise.engine import is_run
from widthwise.studies.control import resolve
from widthwise.studies.pool import Ended, Event
from widthwise.studies.study import PlannedRun


@dataclass(frozen=True)
class Outcome:
    """What became of a planned run: it is done, was skipped since it was finished before, or failed."""

    planned: PlannedRun
    state: Literal["done", "skipped", "failed"]
    error: str | None = None


class Pool(Protocol):
    """Trains runs (``studies.pool.RunPool``)."""

    @property
    def free(self) -> int:
        """How many more runs can be started now."""

    def submit(self, run: PlannedRun) -> None:
        """Start a run, or go on with the part of it that its folder holds."""

    def events(self) -> Iterator[Event]:
        """Wait for news and yield what is there."""


def run_study(
    planned: Sequence[PlannedRun], pool: Pool, watch: Callable[[Event], None] = lambda event: None
) -> Iterator[Outcome]:
    """Run what is not finished yet, as many runs at once as the pool takes.

    A folder whose result belongs to the same configuration is skipped; one that was broken off is resumed.
    A run that is matched to another one starts when that one is done. A run that fails does not stop the
    others.

    Args:
        planned: The runs, each after the one that it is matched to.
        pool: Trains them.
        watch: Is told every event.

    Yields:
        What became of each run, as soon as it is known.
    """
    pending = {run.path: run for run in planned}
    unseen, ready = list(planned), deque[PlannedRun]()
    failed: dict[Path, str] = {}
    while pending:
        while found := [run for run in unseen if run.source not in pending]:
            for run in found:
                unseen.remove(run)
                checked = _look(run, failed)
                if isinstance(checked, Outcome):
                    del pending[run.path]
                    if checked.error is not None:
                        failed[run.path] = checked.error
                    yield checked
                else:
                    pending[run.path] = checked
                    ready.append(checked)
        while ready and pool.free:
            pool.submit(ready.popleft())
        for event in pool.events() if pending else ():
            watch(event)
            if isinstance(event, Ended):
                if event.error is not None:
                    failed[event.path] = event.error
                yield Outcome(
                    pending.pop(event.path), "failed" if event.error is not None else "done", event.error
                )


def _look(run: PlannedRun, failed: Mapping[Path, str]) -> PlannedRun | Outcome:
    """Return the run as it is to be trained, or its outcome where that is known already."""
    if run.source is not None and run.source in failed:  # its folder may hold an earlier, other run
        return Outcome(run, "failed", f"the run it is matched to failed: {failed[run.source]}")
    try:
        run = replace(run, config=resolve(run.config))
    except WidthwiseError as error:
        return Outcome(run, "failed", str(error))
    return Outcome(run, "skipped") if finished(run) else run


def finished(run: PlannedRun) -> bool:
    """Return whether the run's folder holds its result, under the same configuration."""
    try:
        result = json.loads((run.path / "result.json").read_text(encoding="utf-8"))
        return is_run(run.path) and bool(result["config_hash"] == run.config.hash())
    except (OSError, ValueError, TypeError, KeyError):
        return False
