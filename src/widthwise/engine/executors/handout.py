"""Handing out the stacks of a round and taking their reports: in one order, and not too far ahead."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from widthwise.core.errors import DivergenceError, RunError
from widthwise.core.records import Answer
from widthwise.engine.worker import Stack

WINDOW = 4
"""Stacks for each worker that may be handed out before the oldest of them is yielded: what waits for
a slow client is bounded, and a worker stands idle only where one client takes as long as several."""


class Crew(Protocol):
    """Workers elsewhere, each of which trains one stack at a time."""

    @property
    def free(self) -> bool:
        """Whether another stack can be given."""
        ...

    def give(self, number: int, stack: Stack) -> None:
        """Have a stack trained by whoever is free."""
        ...

    def trained(self) -> Iterable[tuple[int, Sequence[Answer]]]:
        """Wait until something happens, and return numbers and reports of the stacks that are done.

        Raises:
            RunError: if a client has failed, or there is no hope for a stack.
        """
        ...


def in_order(crew: Crew, stacks: Iterator[Stack], window: int) -> Iterator[Answer]:
    """Return the reports of stacks in their order, whoever is done first; training begins at once.

    Args:
        crew: Who trains them.
        stacks: Taken one by one, when they can be given.
        window: Stack k is given once fewer than so many lie between it and the next one to be yielded.

    Raises:
        RunError: what ``crew`` raises.
    """
    ready: dict[int, Sequence[Answer]] = {}
    given = done = 0

    def hand_out() -> None:
        nonlocal given
        while crew.free and given - done < window and (stack := next(stacks, None)):
            crew.give(given, stack)
            given += 1

    def answers() -> Iterator[Answer]:
        nonlocal done
        while done < given:
            if done in ready:
                yield from ready.pop(done)
                done += 1
            else:
                ready.update(crew.trained())
            hand_out()

    hand_out()
    return answers()


def encode_failure(error: RunError) -> bytes:
    """Return the error that a worker has caught, to be raised by its parent."""
    kind = DivergenceError if isinstance(error, DivergenceError) else RunError
    fields = {
        "reason": error.reason,
        "client": error.client,
        "round_index": error.round_index,
        "stage": error.stage,
    }
    return pickle.dumps((kind, fields, "".join(traceback.format_exception(error))))


def decode_failure(data: bytes) -> RunError:
    """Return the error of ``encode_failure``, the worker's traceback as its note."""
    kind, fields, trace = pickle.loads(data)
    error: RunError = kind(**fields)
    error.add_note(f"Traceback in the worker process:\n{trace}")
    return error
