"""Everything a run needs to go on, as safetensors and JSON.

A checkpoint is a pair ``round-000010.safetensors`` and ``round-000010.json`` in ``<run>/checkpoint``. The
JSON is put in place last and holds the SHA-256 of its tensors, so a pair is complete or does not exist.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from widthwise.allocation import PolicyState
from widthwise.core.errors import CheckpointError
from widthwise.core.params import Params
from widthwise.engine.federation import Federation
from widthwise.engine.files import write_atomic, write_json
from widthwise.engine.state import ServerState

FORMAT = 2


def save_checkpoint(folder: Path, state: ServerState, config_hash: str) -> None:
    """Save a state and remove older checkpoints.

    Raises:
        InputError: if the folder cannot be written; an older checkpoint is still there then.
    """
    folder.mkdir(exist_ok=True)
    stem = f"round-{state.round_index:06d}"
    tensors = {f"{group}|{name}": value.contiguous() for group, name, value in _flatten(state)}
    path = folder / f"{stem}.safetensors"
    # Not by way of bytes in memory: with a million clients they are as large as all that is kept of them.
    write_atomic(path, lambda temporary: safetensors.torch.save_file(tensors, temporary))
    write_json(
        folder / f"{stem}.json",
        {
            "format": FORMAT,
            "round": state.round_index,
            "config_hash": config_hash,
            "sha256": _sha256(path),
            "policy": dict(state.policy.extra),
            "measured": state.measured,
        },
    )
    for old in folder.iterdir():
        if old.stem != stem:
            with contextlib.suppress(OSError):
                old.unlink()


def load_checkpoint(folder: Path, fed: Federation) -> ServerState | None:
    """Return the newest saved state, or None where nothing was saved.

    Raises:
        CheckpointError: if the checkpoint is damaged, was written by another version or configuration, or
            holds other parameters than the model.
    """
    records = sorted(folder.glob("round-*.json"))
    if not records:
        return None
    path = records[-1]
    try:
        stored = path.with_suffix(".safetensors")
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if _sha256(stored) != record["sha256"]:
            raise ValueError("its tensors are not the ones that were saved")
        tensors = safetensors.torch.load_file(stored)
        if record.get("format") != FORMAT or record["config_hash"] != fed.config_hash:
            raise CheckpointError(
                f"checkpoint is {str(path)!r}, but it was written by another configuration or version. "
                "Resume with the configuration in the run's config.yaml, or choose another --out."
            )
        return _restore(path, record, tensors, fed)
    except CheckpointError:
        raise
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise CheckpointError(
            f"checkpoint is {str(path)!r}, but it is damaged ({why}). "
            "Remove the folder and start the run again, or restore it from a copy."
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flatten(state: ServerState) -> list[tuple[str, str, Tensor]]:
    groups: dict[str, Params] = {
        "params": state.params,
        "buffers": state.buffers,
        "ever_covered": state.ever_covered,
        "registered": {
            "widths": torch.from_numpy(np.asarray(state.policy.widths, dtype=np.float64)),
            "estimates": torch.from_numpy(np.asarray(state.estimates, dtype=np.float64)),
            "states": torch.tensor([*state.clients.items()], dtype=torch.int64).view(-1, 2),
        },
        **{f"server/{name}": tensors for name, tensors in state.server.items()},
    }
    return [(group, name, value) for group, tensors in groups.items() for name, value in tensors.items()]


def _restore(path: Path, record: dict[str, Any], tensors: Params, fed: Federation) -> ServerState:
    start = ServerState.initial(fed)
    groups: dict[str, Params] = {}
    for key, value in tensors.items():
        group, name = key.split("|", 1)
        groups.setdefault(group, {})[name] = value
    params = groups.get("params", {})
    if {n: v.shape for n, v in params.items()} != {n: v.shape for n, v in start.params.items()}:
        raise CheckpointError(
            f"checkpoint is {str(path)!r}, but its parameters are not those of the model. "
            "Choose another --out."
        )
    registered = groups["registered"]
    round_index = int(record["round"])
    if round_index != int(path.stem.removeprefix("round-")):
        raise ValueError(f"it says that it is of round {round_index}")
    return ServerState(
        round_index=round_index,
        params={name: params[name] for name in start.params},
        buffers={name: groups["buffers"][name] for name in start.buffers},
        policy=PolicyState(registered["widths"].numpy(), dict(record["policy"])),
        estimates=registered["estimates"].numpy(),
        measured=bool(record["measured"]),
        server={
            name: {n: groups[f"server/{name}"][n] for n in tensors_}
            for name, tensors_ in start.server.items()
        },
        clients=dict(registered["states"].tolist()),
        ever_covered={name: groups["ever_covered"][name] for name in start.ever_covered},
    )
