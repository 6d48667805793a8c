"""The run folder while a run is being made: what is written, when, and how a resumed run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import safetensors.torch
import yaml
from torch import nn

from widthwise.core.errors import CheckpointError, InputError
from widthwise.core.records import RoundRecord
from widthwise.engine.checkpoint import load_checkpoint, save_checkpoint
from widthwise.engine.client_rows import CLIENT_SCHEMA
from widthwise.engine.disk import Disk
from widthwise.engine.environment import environment
from widthwise.engine.federation import Federation
from widthwise.engine.files import LOCK, FolderLock, cannot_write, write_atomic, write_json, write_text
from widthwise.engine.round import listed_clients
from widthwise.engine.state import ServerState
from widthwise.heterogeneity import label_divergence

ROW_GROUP = 10_000
"""Fewest rows of a row group of ``clients.parquet``, but for the last one."""


#: Traceback of the failure of the last try.
ERROR = "error.txt"
#: What is written before ``config.yaml``: a start that was killed leaves some of it, and may be made again.
FIRST = ("environment.json", "partition.json", "config.yaml")


def _is_foreign(path: Path) -> bool:
    """Return whether a file in a folder without ``config.yaml`` comes from something else than a start."""
    temporary = path.name.startswith(tuple(f".{name}." for name in FIRST))
    return path.name not in (LOCK, *FIRST) and not temporary


class RunFolder:
    """Writer of a run folder. Rounds are appended as they end; client rows are saved with checkpoints.

    Held by one process at a time, from ``open`` to ``close``; the lock of a killed process is free.

    Args:
        path: The folder; created where missing.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.disk = path, Disk(path)
        self._rows: list[pa.Table] = []
        self._lock = FolderLock(path, "output folder")

    def open(self, fed: Federation, resume: bool) -> ServerState | None:
        """Prepare the folder and return the state to go on from, or None for a start from round 0.

        Raises:
            CheckpointError: if the folder holds something else, or a run and ``resume`` is off, or is held
                by another process.
            InputError: if the folder cannot be written.
        """
        config = self.path / "config.yaml"
        if self.path.is_dir() and not config.is_file() and any(map(_is_foreign, self.path.iterdir())):
            raise CheckpointError(
                f"output folder is {str(self.path)!r}, but it holds files that are not a run. "
                "Choose an empty --out."
            )
        self._lock.acquire()
        if config.is_file():
            self._check_same(config, fed, resume)
            state = load_checkpoint(self.path / "checkpoint", fed)
            (self.path / ERROR).unlink(missing_ok=True)  # it is tried again: what stopped it is past
            if not self.complete:
                self.disk.check({} if state is None else state.clients)
                self._rewind(0 if state is None else state.round_index)
            return state
        stored = {"name": fed.label, "config_hash": fed.config_hash, **fed.config}
        try:
            write_json(self.path / "environment.json", environment(fed.devices))
            write_json(self.path / "partition.json", describe_partition(fed))
            # Written last: a folder with a config.yaml is a run.
            write_text(config, yaml.safe_dump(stored, sort_keys=False))
        except InputError:
            for name in ("environment.json", "partition.json"):
                (self.path / name).unlink(missing_ok=True)
            raise
        return None

    def close(self) -> None:
        """Let other processes open the folder."""
        self._lock.release()

    @property
    def complete(self) -> bool:
        """Whether the run has ended."""
        return (self.path / "result.json").is_file()

    def _check_same(self, config: Path, fed: Federation, resume: bool) -> None:
        try:
            stored = yaml.safe_load(config.read_text(encoding="utf-8"))
            same = stored["config_hash"] == fed.config_hash
        except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{str(config)!r} cannot be read ({error}), but a run folder must say what it ran. "
                "Choose another --out."
            ) from error
        if not same:
            raise CheckpointError(
                f"output folder is {str(self.path)!r}, but it holds a run of another configuration "
                f"({stored.get('name')}). Choose another --out."
            )
        if not resume:
            raise CheckpointError(
                f"output folder is {str(self.path)!r}, but it holds this run already. "
                "Add --resume to go on with it, or choose another --out."
            )
        try:
            started_with = json.loads((self.path / "partition.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"partition.json in {str(self.path)!r} cannot be read ({error}), but a resumed run must have "
                "the data that it started with. Choose another --out."
            ) from error
        if started_with != describe_partition(fed):
            raise CheckpointError(
                f"output folder is {str(self.path)!r}, but its run started with other data or another "
                "partition (see partition.json). Give the same data, or choose another --out."
            )

    def _rewind(self, round_index: int) -> None:
        """Drop what was written after the checkpoint: those rounds are run again."""
        rounds = self.path / "rounds.jsonl"
        if rounds.is_file() or round_index:
            text = rounds.read_text(encoding="utf-8") if rounds.is_file() else ""
            lines = text.splitlines()[:round_index]
            if len(lines) < round_index:
                raise CheckpointError(
                    f"{str(rounds)!r} has {len(lines)} rounds, but the checkpoint is at round {round_index}. "
                    "Remove the folder and start the run again."
                )
            try:
                numbers = [json.loads(line)["round"] for line in lines]
            except (ValueError, TypeError, KeyError):
                numbers = []
            if numbers != list(range(round_index)):
                raise CheckpointError(
                    f"{str(rounds)!r} is damaged, but a run goes on only from whole files. "
                    "Remove the folder and start the run again."
                )
            write_text(rounds, "".join(f"{line}\n" for line in lines))
        clients = self.path / "clients.parquet"
        if clients.is_file():
            self._write_clients(keep_before=round_index)

    def append(self, record: RoundRecord, client_rows: pa.Table) -> None:
        """Add a finished round."""
        self._rows.append(client_rows)
        path = self.path / "rounds.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record.to_json(), allow_nan=False) + "\n")
        except OSError as error:
            raise cannot_write(path, error) from error

    def save(self, state: ServerState, fed: Federation) -> None:
        """Save the client rows so far and a checkpoint of the state."""
        self._write_clients(keep_before=state.round_index)
        save_checkpoint(self.path / "checkpoint", state, fed.config_hash)
        self.disk.keep(state.clients)

    def _write_clients(self, keep_before: int) -> None:
        path = self.path / "clients.parquet"
        fresh = pa.concat_tables([CLIENT_SCHEMA.empty_table(), *self._rows])
        fresh = fresh.filter(pc.less(fresh["round"], keep_before))
        if fresh.num_rows:  # an interrupt may come after rows were written and before they were forgotten
            keep_before = min(keep_before, pc.min(fresh["round"]).as_py())

        def parts() -> Iterator[pa.Table]:
            if path.is_file():
                with pq.ParquetFile(path) as old:
                    for i in range(old.num_row_groups):
                        group = old.read_row_group(i)
                        yield group.filter(pc.less(group["round"], keep_before))
            yield fresh

        def write(temporary: Path) -> None:
            # In row groups of bounded size, so that memory does not grow with the run; not in one
            # for each save, whose headers would outweigh the rows.
            with pq.ParquetWriter(temporary, CLIENT_SCHEMA) as writer:
                waiting = CLIENT_SCHEMA.empty_table()
                for part in parts():
                    waiting = pa.concat_tables([waiting, part])
                    if waiting.num_rows >= ROW_GROUP:
                        writer.write_table(waiting)
                        waiting = CLIENT_SCHEMA.empty_table()
                if waiting.num_rows:
                    writer.write_table(waiting)

        try:
            write_atomic(path, write)
        except pa.ArrowInvalid as error:
            raise CheckpointError(
                f"{str(path)!r} is damaged ({error}), but a run goes on only from whole files. "
                "Remove the folder and start the run again."
            ) from error
        self._rows = []

    def read_rounds(self) -> list[dict[str, Any]]:
        """Return the lines of ``rounds.jsonl``."""
        text = (self.path / "rounds.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def save_model(self, module: nn.Module) -> None:
        """Write ``final.safetensors``: a trained model, for ``safetensors.torch.load_model``."""
        path = self.path / "final.safetensors"
        write_atomic(path, lambda temporary: safetensors.torch.save_model(module, str(temporary)))

    def finish(self, result: dict[str, Any]) -> None:
        """Write ``result.json``: the run is complete."""
        write_json(self.path / "result.json", result)


def describe_partition(fed: Federation) -> dict[str, Any]:
    """Return the content of ``partition.json``."""
    task, listed = fed.task, listed_clients(fed)
    counts = task.class_counts(listed)
    return {
        "hash": task.partition.digest(),
        "num_clients": len(task.capacities),
        "num_classes": task.train.num_classes,
        "class_names": list(task.train.class_names),
        "clients": list(listed),
        "class_counts": counts.tolist(),
        "label_divergence": label_divergence(counts, task.class_totals()).tolist(),
        "capacities": task.capacities[list(listed)].tolist(),
        "tiers": list(task.tiers),
    }
