"""The executor's promise: the reports of a round, in the order of its assignments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self

from widthwise.core.records import Answer, Dropped
from widthwise.engine.round import Assignment, Broadcast
from widthwise.engine.worker import ClientRunner


class RepeatRound(Exception):
    """Too few answers count: the round is to be done again, with the same plan, from the same state."""


class Executor(Protocol):
    """Owns whatever clients are trained on. Used as a context manager for the length of a run.

    All executors give the same reports to the bit; the contract suite holds each against ``serial``.
    """

    def __init__(self, runner: ClientRunner, workers: int, address: str | None = None) -> None:
        """Only take notice.

        Args:
            runner: Trains clients; workers elsewhere get a copy.
            workers: How many clients, or stacks of them, are trained at a time.
            address: Where workers are found, for executors that do not start their own.
        """
        ...

    def run(self, broadcast: Broadcast, assignments: Iterable[Assignment]) -> Iterator[Answer | Dropped]:
        """Train the clients and yield their reports in the order of the assignments.

        Where clients are devices of their own, some never answer, or with what does not count: an executor
        may then drop them instead of failing.

        Assignments are taken when they can be handed out, some of them perhaps before a report is asked for,
        and few reports wait for a slow one before them: memory does not grow with the number of assignments.

        Raises:
            RunError: if a client fails; names client, round and stage.
            RepeatRound: after the last report, if the round is to be done again. How often is the
                executor's to bound.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
