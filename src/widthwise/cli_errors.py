"""What the command line says when something goes wrong, and the exit code that goes with it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click
import typer
from typer.core import TyperGroup

from widthwise.core.errors import InputError, RunError, WidthwiseError

FAILED, BAD_INPUT, INTERRUPTED, TERMINATED = 1, 2, 130, 143


class Termination(KeyboardInterrupt):
    """SIGTERM, as a shutdown or a batch system sends it: answered like Ctrl-C, by saving."""


def save_on_sigterm() -> None:
    """Let SIGTERM interrupt this process as Ctrl-C does; a second one does not interrupt the saving."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Termination

    signal.signal(signal.SIGTERM, interrupt)


def interrupted(error: KeyboardInterrupt, message: str) -> typer.Exit:
    """Say that the command was interrupted and how to go on; return what ends it."""
    say("interrupted", message)
    return typer.Exit(TERMINATED if isinstance(error, Termination) else INTERRUPTED)


class Commands(TyperGroup):
    """The group of all commands: turns errors into one message on stderr and an exit code.

    ``WIDTHWISE_DEBUG=1`` lets the traceback through.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except WidthwiseError as error:
            if os.environ.get("WIDTHWISE_DEBUG"):
                raise
            say("error", error)
            raise typer.Exit(BAD_INPUT if isinstance(error, InputError) else FAILED) from None
        except KeyboardInterrupt as error:
            raise interrupted(error, "Nothing that was finished is lost.") from None


def say(kind: str, message: object) -> None:
    """Print a message on stderr."""
    print(f"{kind}: {message}", file=sys.stderr)


def warn(lines: Iterable[str | None]) -> None:
    """Print each warning once on stderr; None is none."""
    for line in dict.fromkeys(lines):
        if line is not None:
            say("warning", line)


@contextmanager
def explained(out: Path) -> Iterator[None]:
    """Say where to look, or how to go on, when the run that writes ``out`` fails or is interrupted."""
    traceback = out / "error.txt"
    try:
        yield
    except RunError:
        if traceback.is_file():
            say("note", f"The full traceback of the failure is in {traceback}.")
        raise
    except KeyboardInterrupt as error:
        message = f"Everything up to the last finished round is in {out}. Add --resume to go on."
        raise interrupted(error, message) from None
