"""Live progress of a run or a study on stderr: bars on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from widthwise.core.records import RoundRecord
from widthwise.engine import Federation
from widthwise.studies import Advance, Ended, Note, Outcome, PlannedRun

#: Lines that a whole run prints where there is no terminal to draw a bar on.
PLAIN_LINES = 12


class ProgressSink:
    """Shows round, accuracy, mean width, coverage, MB and time left. Use it as a context manager.

    Args:
        console: Where to write.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=20), console=console, transient=True
        )
        self._task: TaskID | None = None
        self._label, self._rounds, self._start = "", 0, 0
        self._begun = 0.0
        self._accuracy: float | None = None
        self._megabytes = 0.0

    def __enter__(self) -> ProgressSink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stop()

    def on_start(self, federation: Federation, start_round: int) -> None:
        """Begin at ``start_round``."""
        self._label, self._rounds, self._start = federation.label, federation.training.rounds, start_round
        self._begun = time.monotonic()
        if start_round:
            self._console.print(f"{self._label}: going on at round {start_round + 1}", highlight=False)
        if self._console.is_terminal:
            self._bar.start()
            self._task = self._bar.add_task(self._label, total=self._rounds, completed=start_round)

    def on_round(self, record: RoundRecord) -> None:
        """Show a finished round."""
        if record.accuracy is not None:
            self._accuracy = record.accuracy
        self._megabytes += (record.bytes_up + record.bytes_down) / 1e6
        done = record.round + 1
        line = self._line(record, done)
        if self._task is not None:
            self._bar.update(self._task, completed=done, description=line)
        elif done == self._rounds or done % math.ceil(self._rounds / PLAIN_LINES) == 0:
            self._console.print(line, highlight=False, soft_wrap=True)

    def on_end(self, result: dict[str, Any]) -> None:
        """Take the bar away."""
        self._stop()

    def _stop(self) -> None:
        if self._task is not None:  # rich prints an empty line for a bar that never was
            self._bar.stop()

    def _line(self, record: RoundRecord, done: int) -> str:
        per_round = (time.monotonic() - self._begun) / (done - self._start)
        left = per_round * (self._rounds - done)
        return (
            f"{self._label}: round {done:>{len(str(self._rounds))}}/{self._rounds}  "
            f"accuracy {_percent(self._accuracy)}  "
            f"width {record.mean_width:.2f}  coverage {record.coverage:4.0%}  "
            f"{self._megabytes:.1f} MB  {_clock(left)} left"
        )


class StudyProgress:
    """Shows a study: a bar for all rounds of all runs, one for each run at work, a line for each that ended.

    The time left is what the remaining rounds take at the pace of the rounds so far: those of the same task
    and method where there are any, else of the same task, else of all. Use it as a context manager.

    Args:
        console: Where to write.
        planned: The runs.
        folder: The study's folder, which names of runs leave out.
        jobs: Number of runs side by side.
    """

    def __init__(self, console: Console, planned: Sequence[PlannedRun], folder: Path, jobs: int) -> None:
        self._console, self._folder, self._jobs = console, folder, jobs
        self._runs = {run.path: run for run in planned}
        self._left = {run.path: run.config.training.rounds for run in planned}
        self._pace = _Pace()
        self._last: dict[Path, float] = {}
        self._bars: dict[Path, TaskID] = {}
        self._ended = 0
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=20), console=console, transient=True
        )
        self._total: TaskID | None = None

    def __enter__(self) -> StudyProgress:
        if self._console.is_terminal:
            self._bar.start()
            self._total = self._bar.add_task("", total=sum(self._left.values()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._total is not None:
            self._bar.stop()

    def name(self, run: PlannedRun) -> str:
        """Return what a run is called: its folder below the study's."""
        return run.path.relative_to(self._folder).as_posix()

    def watch(self, event: Advance | Note | Ended) -> None:
        """Show what a run tells."""
        run = self._runs[event.path]
        if isinstance(event, Note):
            self._print(f"{self.name(run)}: {event.kind}: {event.text}")
        elif isinstance(event, Advance):
            self._advance(run, event)

    def ended(self, outcome: Outcome) -> None:
        """Show what became of a run."""
        run, self._ended = outcome.planned, self._ended + 1
        self._left[run.path] = 0
        if (bar := self._bars.pop(run.path, None)) is not None:
            self._bar.remove_task(bar)
        text = {"done": "done", "skipped": "finished before, skipped", "failed": f"failed: {outcome.error}"}
        line = f"{self.name(run)}: {text[outcome.state]}"
        self._print(line if outcome.state == "skipped" else f"{line}  [{self._overall()}]")
        self._show_total()

    def _advance(self, run: PlannedRun, event: Advance) -> None:
        rounds, now = run.config.training.rounds, time.monotonic()
        if run.path in self._last and event.done:
            self._pace.add(run, now - self._last[run.path])
        elif event.done:
            self._print(f"{self.name(run)}: going on at round {event.done + 1}")
        self._last[run.path], self._left[run.path] = now, rounds - event.done
        if self._total is not None:
            line = f"{self.name(run)}: round {event.done}/{rounds}  accuracy {_percent(event.accuracy)}"
            if run.path not in self._bars:
                self._bars[run.path] = self._bar.add_task(line, total=rounds)
            self._bar.update(self._bars[run.path], completed=event.done, description=line)
        self._show_total()

    def _show_total(self) -> None:
        if self._total is not None:
            all_rounds = sum(run.config.training.rounds for run in self._runs.values())
            done = all_rounds - sum(self._left.values())
            self._bar.update(self._total, completed=done, description=self._overall())

    def _overall(self) -> str:
        seconds = [self._pace(self._runs[path]) * left for path, left in self._left.items() if left]
        known = self._pace.known
        # The last runs cannot be shared out: none of them is over before its own rounds are.
        time_left = max(sum(seconds) / self._jobs, max(seconds, default=0.0))
        return f"{self._ended}/{len(self._runs)} runs, {_clock(time_left) if known else '--'} left"

    def _print(self, line: str) -> None:
        # Through the bars' own console they stay below what is printed.
        self._bar.console.print(line, highlight=False, soft_wrap=True, markup=False)


class _Pace:
    """Mean seconds of a round, by the nearest kind of run of which a round has been seen."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], list[float]] = defaultdict(list)

    @property
    def known(self) -> bool:
        """Whether any round has been seen."""
        return bool(self._seen)

    def add(self, run: PlannedRun, seconds: float) -> None:
        """Note a round."""
        for key in self._keys(run):
            self._seen[key].append(seconds)

    def __call__(self, run: PlannedRun) -> float:
        """Return the expected seconds of a round of this run; 0 where nothing is known."""
        seen = next((self._seen[key] for key in self._keys(run) if key in self._seen), [0.0])
        return sum(seen) / len(seen)

    @staticmethod
    def _keys(run: PlannedRun) -> list[tuple[str, ...]]:
        return [(run.task, run.label), (run.task,), ()]


def _percent(share: float | None) -> str:
    return "  --  " if share is None else f"{share:6.1%}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
