"""TensorBoard events of a run (extra ``tensorboard``)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from widthwise.core.errors import ConfigError
from widthwise.core.records import RoundRecord
from widthwise.engine.federation import Federation


class TensorBoardSink:
    """Writes one scalar per figure and round into ``<run>/tensorboard``.

    Args:
        folder: The run folder.

    Raises:
        ConfigError: if the package ``tensorboard`` is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "engine.tensorboard is true, but the package 'tensorboard' is not installed. "
                "Run: pip install 'widthwise[tensorboard]'"
            ) from error
        self._make: Any = partial(SummaryWriter, str(folder / "tensorboard"))
        self._writer: Any = None

    def on_start(self, federation: Federation, start_round: int) -> None:
        """Open the event file; events of rounds that will be run again are purged."""
        self._writer = self._make(purge_step=start_round)

    def on_round(self, record: RoundRecord) -> None:
        """Write the figures of a round."""
        for name, value in record.to_json().items():
            if name != "round" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, record.round)
        for tier, accuracy in (record.tier_accuracy or {}).items():
            self._writer.add_scalar(f"tier_accuracy/{tier}", accuracy, record.round)
        self._writer.flush()

    def on_end(self, result: dict[str, Any]) -> None:
        """Close the event file."""
        self._writer.close()
