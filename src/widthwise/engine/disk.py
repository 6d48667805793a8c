"""What a run keeps on disk, not in memory: the states of its clients, and reports that are read twice."""

from __future__ import annotations

import contextlib
import hashlib
import struct
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from widthwise.core.errors import CheckpointError
from widthwise.core.params import Params
from widthwise.core.records import ClientReport
from widthwise.engine.codec import decode_report, encode_report
from widthwise.engine.files import cannot_write, write_atomic

IN_MEMORY = 64 * 2**20
"""Bytes of reports that a spool holds before it moves to disk."""


@dataclass(frozen=True)
class Disk:
    """Client states and spools of one run, below its folder.

    A client's state after a round is the file ``clients/<client>-<round>.safetensors``. It is put in place
    whole and never changed: a server state names the states of its clients by their rounds, and stays valid
    until ``keep`` is told of another one.

    Attributes:
        path: The run folder.
    """

    path: Path

    def write(self, client: int, round_index: int, states: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Save the state of a client after a round.

        Args:
            client: Index of the client.
            round_index: The round.
            states: Name -> parameter dictionary.

        Raises:
            InputError: if the folder cannot be written.
        """
        flat = {f"{name}|{n}": v.contiguous() for name, state in states.items() for n, v in state.items()}
        data = safetensors.torch.save(flat, {"sha256": _digest(flat)})
        path = self._file(client, round_index)
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise cannot_write(path, error) from error
        write_atomic(path, lambda temporary: temporary.write_bytes(data))

    def read(self, client: int, round_index: int) -> dict[str, Params]:
        """Return the state of a client after a round; parameters are in no order.

        Raises:
            CheckpointError: if the file is missing or damaged.
        """
        path = self._file(client, round_index)
        try:
            with safetensors.safe_open(path, "pt") as file:
                flat = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
                if (file.metadata() or {}).get("sha256") != _digest(flat):
                    raise ValueError("its tensors are not the ones that were saved")
        except (OSError, ValueError, safetensors.SafetensorError) as error:
            raise CheckpointError(
                f"client state {str(path)!r} cannot be read ({error}), but a run goes on only from whole "
                "files. Restore it from a copy, or remove the run folder and start again."
            ) from error
        states: dict[str, Params] = {}
        for key, value in flat.items():
            name, parameter = key.split("|", 1)
            states.setdefault(name, {})[parameter] = value
        return states

    def check(self, clients: Mapping[int, int]) -> None:
        """Refuse to go on where a client's state is not there.

        Args:
            clients: Client -> round of its state.

        Raises:
            CheckpointError: if a file is missing; it names the first.
        """
        there = {path.name for path in self._files()}
        missing = [path for path in map(self._file, clients, clients.values()) if path.name not in there]
        if missing:
            raise CheckpointError(
                f"client state {str(missing[0])!r} is missing, but the checkpoint names it. "
                "Restore it from a copy, or remove the run folder and start again."
            )

    def keep(self, clients: Mapping[int, int]) -> None:
        """Remove all client states but these: called once a checkpoint that names them is in place."""
        named = {self._file(client, round_index).name for client, round_index in clients.items()}
        for path in self._files():
            if path.name not in named:
                with contextlib.suppress(OSError):
                    path.unlink()

    @contextlib.contextmanager
    def spool(self) -> Iterator[Spool]:
        """Return a spool that is gone after the block, or with the process."""
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY, dir=str(self.path)) as file:
            yield Spool(file, self.path)

    def _file(self, client: int, round_index: int) -> Path:
        return self.path / "clients" / f"{client}-{round_index}.safetensors"

    def _files(self) -> Iterator[Path]:
        folder = self.path / "clients"
        return folder.iterdir() if folder.is_dir() else iter(())


class Spool:
    """Reports one after the other, encoded: in memory up to ``IN_MEMORY`` bytes, on disk beyond."""

    def __init__(self, file: tempfile.SpooledTemporaryFile[bytes], path: Path) -> None:
        self._file, self._path = file, path

    def add(self, report: ClientReport) -> None:
        """Add a report at the end.

        Raises:
            InputError: if the disk is full.
        """
        data = encode_report(report)
        try:
            self._file.write(struct.pack("<Q", len(data)))
            self._file.write(data)
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def __iter__(self) -> Iterator[ClientReport]:
        """Yield the reports in their order, each read when it is asked for."""
        self._file.seek(0)
        while head := self._file.read(8):
            yield decode_report(bytearray(self._file.read(struct.unpack("<Q", head)[0])))


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of contiguous tensors and their names."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
