"""``nodes.jsonl`` in the run folder: what was sent to each node in each round, and what became of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from widthwise.engine.files import cannot_write

FILE = "nodes.jsonl"
ACCEPTED = "accepted"


@dataclass(frozen=True)
class Entry:
    """One message to a client and its answer.

    Attributes:
        round: Index from 0.
        attempt: From 0; above it where the round was repeated.
        client: Index of the client.
        node: Flower's id of its node, None where it has none.
        outcome: ``accepted``, or why the answer does not count, in one word.
        reason: The same in a sentence, None where it counts.
        bytes_down: Bytes of the message as it was sent, headers included.
        tensors_down: Bytes of the tensors in it.
        table_down: What the cost table says, and the client's own states, which the server keeps for it.
        bytes_up: Bytes of the reply.
        tensors_up: Bytes of the tensors in it.
        table_up: What the cost table says.
        seconds: From the sending to the reply's turn.
    """

    round: int
    attempt: int
    client: int
    node: int | None
    outcome: str
    reason: str | None = None
    bytes_down: int = 0
    tensors_down: int = 0
    table_down: int = 0
    bytes_up: int = 0
    tensors_up: int = 0
    table_up: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Journal:
    """Appends to the file. Nothing is ever taken out: a round that a restarted server repeats is there twice.

    Attributes:
        folder: The run folder.
    """

    folder: Path

    def add(self, entry: Entry) -> None:
        """Append an entry.

        Raises:
            InputError: if the disk is full.
        """
        path = self.folder / FILE
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(entry), allow_nan=False) + "\n")
        except OSError as error:
            raise cannot_write(path, error) from error
