"""Reading run folders: the one place that knows how a stored run looks from outside."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from widthwise.core.errors import CheckpointError

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

ROUND_COLUMNS = (
    "round",
    "accuracy",
    "loss",
    "mean_width",
    "coverage",
    "bytes_up",
    "bytes_down",
    "macs",
    "seconds",
    "train_loss",
    "ever_covered",
    "tier_accuracy",
    "estimate_mean",
)
CLIENT_COLUMNS = (
    "round",
    "client",
    "participated",
    "capacity",
    "width",
    "estimate",
    "num_examples",
    "loss",
    "bytes_up",
    "bytes_down",
)
PARTITION_KEYS = (
    "hash",
    "num_clients",
    "num_classes",
    "class_names",
    "clients",
    "class_counts",
    "label_divergence",
    "capacities",
    "tiers",
)
RESULT_KEYS = (
    "name",
    "method",
    "seed",
    "rounds",
    "best_accuracy",
    "best_round",
    "final_accuracy",
    "mean_width",
    "width_accuracy",
    "bytes_up",
    "bytes_down",
    "macs",
    "seconds",
    "config_hash",
    "widths",
    "estimates",
)


@dataclass(frozen=True)
class RunResult:
    """A stored run. Tables are read once; treat them as read-only.

    Attributes:
        path: The run folder.
        config: The run's configuration, as written in ``config.yaml``.
        environment: Versions, machine, commit and command of the run.
        partition: Class counts, label divergence and capacities of the clients.
        rounds: One row per round, columns ``ROUND_COLUMNS``; NaN where not measured.
        clients: One row per round and client, columns ``CLIENT_COLUMNS``.
        result: The keys of ``RESULT_KEYS``, or None while the run is unfinished.
    """

    path: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    partition: dict[str, Any]
    rounds: pd.DataFrame
    clients: pd.DataFrame
    result: dict[str, Any] | None

    @property
    def complete(self) -> bool:
        """Whether the run has ended and its result is written."""
        return self.result is not None

    @property
    def name(self) -> str:
        """The label of the run in tables, the same for all its seeds."""
        return str((self.result or self.config).get("name", self.method))

    @property
    def method(self) -> str:
        """The name of the method."""
        return str(self.config["method"]["name"])

    @property
    def masked(self) -> bool:
        """Whether clients ran the full model under masks, so that MACs do not fall with the width."""
        return (self.result or {}).get("compute") == "masked"

    @property
    def tier_accuracy(self) -> dict[float, float]:
        """Tier -> accuracy of its sub-model at the end; empty for an unfinished run."""
        measured = (self.result or {}).get("width_accuracy") or {}
        return {float(tier): float(accuracy) for tier, accuracy in measured.items()}

    @property
    def seed(self) -> int:
        """The root seed."""
        return int(self.config["seed"])


def is_run(path: Path | str) -> bool:
    """Return whether the folder holds a run, finished or not."""
    return (Path(path) / "config.yaml").is_file()


def load_run(path: Path | str) -> RunResult:
    """Read a run folder.

    An unfinished run (no ``result.json`` yet) is read as far as it got: files that are not there yet give
    empty tables, and a last line of ``rounds.jsonl`` that was cut off is left out.

    Args:
        path: The run folder.

    Returns:
        The stored run.

    Raises:
        CheckpointError: if the folder is not a run, or one of its files is missing or damaged.
    """
    folder = Path(path)
    if not is_run(folder):
        raise CheckpointError(
            f"run folder is {str(folder)!r}, but it holds no config.yaml. Give the folder of a run."
        )
    unfinished = not (folder / "result.json").is_file()
    config = _read(folder / "config.yaml", _yaml)
    _require_keys(folder / "config.yaml", config, ("method", "seed"))
    if not isinstance(config["method"], dict) or "name" not in config["method"]:
        raise _damaged(folder / "config.yaml", "the method has no name")

    def read(name: str, reader: Callable[[Path], T], empty: T) -> T:
        file = folder / name
        return empty if unfinished and not file.is_file() else _read(file, reader)

    import pandas as pd  # not above: a run that trains needs the memory for other things

    nothing: dict[str, Any] = {}
    partition = read("partition.json", _json, nothing)
    result = None if unfinished else _read(folder / "result.json", _json)
    rounds = read("rounds.jsonl", lambda file: _rounds(file, unfinished), _round_table([]))
    clients = read("clients.parquet", pd.read_parquet, pd.DataFrame(columns=list(CLIENT_COLUMNS)))
    if partition or not unfinished:
        _require_keys(folder / "partition.json", partition, PARTITION_KEYS)
    if result is not None:
        _require_keys(folder / "result.json", result, RESULT_KEYS)
        if len(rounds) != result["rounds"]:
            raise _damaged(folder / "rounds.jsonl", f"it has {len(rounds)} of {result['rounds']} rounds")
    _require_keys(folder / "rounds.jsonl", rounds, ROUND_COLUMNS)
    _require_keys(folder / "clients.parquet", clients, CLIENT_COLUMNS)
    return RunResult(
        folder, config, read("environment.json", _json, nothing), partition, rounds, clients, result
    )


def _read(file: Path, reader: Callable[[Path], T]) -> T:
    try:
        return reader(file)
    except CheckpointError:
        raise
    except FileNotFoundError:
        raise _damaged(file, "the file is missing") from None
    # pyarrow, yaml and json each raise their own types for bytes that are not theirs.
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _damaged(file, str(error).splitlines()[0] if str(error) else type(error).__name__) from error


def _damaged(file: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{file.name} in run folder {str(file.parent)!r} is damaged, but a run must be whole to be read "
        f"({why}). Run it again, or give another folder."
    )


def _require_keys(file: Path, has: Mapping[str, Any] | pd.DataFrame, needed: tuple[str, ...]) -> None:
    missing = [key for key in needed if key not in has]
    if missing:
        raise _damaged(file, f"it lacks {', '.join(missing)}")


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"it holds {type(value).__name__} where a mapping belongs")
    return value


def _yaml(file: Path) -> dict[str, Any]:
    return _mapping(yaml.safe_load(file.read_text(encoding="utf-8")))


def _json(file: Path) -> dict[str, Any]:
    return _mapping(json.loads(file.read_text(encoding="utf-8")))


def _rounds(file: Path, unfinished: bool) -> pd.DataFrame:
    lines = file.read_text(encoding="utf-8").split("\n")
    # Every whole line ends with a newline, so whatever follows the last one was cut off while being written.
    torn = lines.pop()
    if torn and not unfinished:
        raise ValueError("its last line is cut off")
    return _round_table([_mapping(json.loads(line)) for line in lines])


def _round_table(records: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    table = pd.DataFrame(records) if records else pd.DataFrame(columns=list(ROUND_COLUMNS))
    # JSON's null would leave columns of objects; NaN marks "not measured" in numeric ones.
    numeric = [column for column in table.columns if column not in ("tier_accuracy", "dropped")]
    return table.assign(**{column: pd.to_numeric(table[column]) for column in numeric})
