"""The executor's promise: the reports of a round, each as it becomes ready, in any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from widthwise.core.records import ClientReport
from widthwise.engine.round import Assignment, Broadcast
from widthwise.engine.worker import ClientRunner


class Executor(Protocol):
    """Owns whatever clients are trained on. Used as a context manager for the length of a run.

    All executors give the same reports to the bit; the contract suite holds each against ``serial``.
    """

    def __init__(self, runner: ClientRunner, workers: int) -> None: ...

    def run(self, broadcast: Broadcast, assignments: Sequence[Assignment]) -> Iterator[ClientReport]:
        """Train the clients and yield their reports as they become ready.

        Raises:
            RunError: if a client fails; names client, round and stage.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
