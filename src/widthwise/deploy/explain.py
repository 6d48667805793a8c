"""Errors that explain themselves, as one line in Flower's log."""

from __future__ import annotations

import logging
import os

from widthwise.core.errors import WidthwiseError


class _OneLine(logging.Filter):
    """Writes the message of an error that widthwise raises on purpose in place of its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, WidthwiseError) and not os.environ.get("WIDTHWISE_DEBUG"):
            record.msg, record.args = "%s: %s", (record.getMessage(), error)
            record.exc_info = None
        return True


_ONE_LINE = _OneLine()


def explain_errors() -> None:
    """Let Flower, which logs what an app raises with a traceback, log what is wrong and what to do.

    ``WIDTHWISE_DEBUG=1`` lets the traceback through, as on the command line.
    """
    logging.getLogger("flwr").addFilter(_ONE_LINE)
