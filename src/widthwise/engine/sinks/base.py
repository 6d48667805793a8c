"""Who else wants to know what a run does."""

from __future__ import annotations

from typing import Any, Protocol

from widthwise.core.records import RoundRecord
from widthwise.engine.federation import Federation


class Sink(Protocol):
    """Receives the events of a run, in order. The run folder itself is always written."""

    def on_start(self, federation: Federation, start_round: int) -> None:
        """A run starts, or goes on, at ``start_round``."""

    def on_round(self, record: RoundRecord) -> None:
        """A round has ended."""

    def on_end(self, result: dict[str, Any]) -> None:
        """The run is complete; ``result`` is the content of ``result.json``."""
