"""Trains the cohort one client after the other in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

from widthwise.core.records import Answer
from widthwise.engine.round import Assignment, Broadcast
from widthwise.engine.worker import ClientRunner


class SerialExecutor:
    """The reference: no process, no queue. ``workers`` and ``address`` are ignored."""

    def __init__(self, runner: ClientRunner, workers: int, address: str | None = None) -> None:
        self._runner = runner

    def run(self, broadcast: Broadcast, assignments: Iterable[Assignment]) -> Iterator[Answer]:
        """Yield the reports in the order of the assignments."""
        for stack in self._runner.stacks(assignments):
            yield from self._runner(broadcast, stack)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
