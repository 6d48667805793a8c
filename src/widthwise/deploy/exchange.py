"""Messages out and replies in, one at a time: what one node sends must not disturb the others."""

from __future__ import annotations

import logging
import time

import httpx
from flwr.app import Message
from flwr.serverapp import Grid

LOG = logging.getLogger("flwr").getChild("widthwise")
"""Below Flower's own logger, so that it is shown, and sent, where Flower's messages are."""

POLL = 0.2
"""Seconds between two looks for a reply."""


class Unreadable(Exception):
    """A reply that Flower cannot put together from what the node has sent."""


class Exchange:
    """The grid, as far as a round needs it.

    Replies wait at the SuperLink until they are pulled, so a server that pulls them one by one holds one of
    them in memory. A message is pulled alone, since one that cannot be read would take all others of the same
    pull with it.

    Args:
        grid: Flower's.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._late: set[str] = set()

    def nodes(self) -> set[int]:
        """Return the nodes that are online."""
        return set(self.grid.get_node_ids())

    def push(self, message: Message) -> str | None:
        """Send a message and return its id, or None where the SuperLink does not take it."""
        return next(iter(self.grid.push_messages([message])), None)

    def pull(self, message_id: str) -> list[Message]:
        """Return the replies to a message that are there; none while there is none.

        Raises:
            Unreadable: if a reply cannot be read.
        """
        try:
            replies = list(self.grid.pull_messages([message_id]))
        except (httpx.HTTPError, OSError):
            raise  # the SuperLink cannot be reached
        except Exception as error:
            raise Unreadable(f"{type(error).__name__}: {error}") from error
        # What a reply says of itself comes from the node, and must not speak for another one.
        if any(reply.metadata.reply_to_message_id != message_id for reply in replies):
            raise Unreadable("it says that it answers another message")
        return replies

    def wait(self, message_id: str, until: float) -> list[Message]:
        """Return the replies to a message, or none if there is none until then (``time.monotonic``).

        Raises:
            Unreadable: if a reply cannot be read.
        """
        while not (replies := self.pull(message_id)) and time.monotonic() < until:
            time.sleep(POLL)
        if not replies:
            self._late.add(message_id)
        return replies

    def discard_late(self) -> None:
        """Take replies that came after their deadline off the SuperLink, which else keeps them."""
        for message_id in sorted(self._late):
            try:
                arrived = bool(self.pull(message_id))
            except Unreadable:
                arrived = True
            if arrived:
                self._late.remove(message_id)
