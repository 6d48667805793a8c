"""Live progress of a run on stderr: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from widthwise.core.records import RoundRecord
from widthwise.engine import Federation

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
        left = round(per_round * (self._rounds - done))
        accuracy = "  --  " if self._accuracy is None else f"{self._accuracy:6.1%}"
        return (
            f"{self._label}: round {done:>{len(str(self._rounds))}}/{self._rounds}  accuracy {accuracy}  "
            f"width {record.mean_width:.2f}  coverage {record.coverage:4.0%}  "
            f"{self._megabytes:.1f} MB  {left // 60}:{left % 60:02d} left"
        )
