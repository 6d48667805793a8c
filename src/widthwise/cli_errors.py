"""What the command line says when something goes wrong, and the exit code that goes with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import typer
from typer.core import TyperGroup

from widthwise.core.errors import InputError, RunError, WidthwiseError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


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
        except KeyboardInterrupt:
            say("interrupted", "Nothing that was finished is lost.")
            raise typer.Exit(INTERRUPTED) from None


def say(kind: str, message: object) -> None:
    """Print a message on stderr."""
    print(f"{kind}: {message}", file=sys.stderr)


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
    except KeyboardInterrupt:
        say("interrupted", f"Everything up to the last finished round is in {out}. Add --resume to go on.")
        raise typer.Exit(INTERRUPTED) from None
