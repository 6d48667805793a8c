"""A run folder as a trained model: everything is built again from its configuration and its checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from widthwise.core.errors import CheckpointError, ConfigError
from widthwise.core.records import SliceSpec
from widthwise.core.traits import Trait
from widthwise.engine import Federation, RunResult, load_run
from widthwise.engine.checkpoint import load_checkpoint
from widthwise.engine.devices import resolved
from widthwise.engine.evaluator import Evaluator
from widthwise.engine.folder import describe_partition
from widthwise.engine.state import ServerState
from widthwise.studies import RunConfig, build
from widthwise.studies.config import NOTED_BY_ENGINE
from widthwise.tasks.custom import OBJECT


@dataclass(frozen=True)
class Trained:
    """What a run has learned up to its newest checkpoint.

    Attributes:
        run: The stored run.
        fed: What it runs, built again.
        state: The state of its server.
    """

    run: RunResult
    fed: Federation
    state: ServerState

    @cached_property
    def evaluator(self) -> Evaluator:
        """Evaluates slices as the run does."""
        return Evaluator(self.fed)

    @property
    def rounds(self) -> int:
        """Rounds of the whole run."""
        return self.fed.training.rounds

    @property
    def masked(self) -> bool:
        """Whether sub-models are the full module with zeros."""
        return Trait.DENSE not in self.fed.method.selector.traits

    def shipped(self, width: float) -> SliceSpec:
        """Return the slice that the run's method ships for a width."""
        return self.evaluator.shipped(self.state, width)


def open_run(
    run: RunResult | Path | str, data_dir: Path | str | None = None, model: nn.Module | None = None
) -> Trained:
    """Build what a run folder ran and load its newest checkpoint: in a finished run, that of the last round.

    It is evaluated on the kind of device that the run had, where there is one here, and else on the CPU.

    Args:
        run: The run, or its folder.
        data_dir: Folder of local data files; it wins over the one in the configuration.
        model: The module that the run was given, where it was given a Python object, with the weights that it
            started from.

    Raises:
        CheckpointError: if the folder is no run, holds no checkpoint or a damaged one, or the data are not
            those of the run.
        InputError: if its data or its model cannot be had.
    """
    stored = run if isinstance(run, RunResult) else load_run(run)
    config = _configuration(stored, model)
    fed = _placed_here(build(config, Path(data_dir) if data_dir else None, stored.name))
    state = load_checkpoint(stored.path / "checkpoint", fed)
    if state is None:
        raise CheckpointError(
            f"run folder is {str(stored.path)!r}, but it holds no checkpoint: nothing that was trained is "
            "saved yet. Go on with the run (widthwise run, with --resume)."
        )
    if describe_partition(fed) != stored.partition:
        raise CheckpointError(
            f"run folder is {str(stored.path)!r}, but its run had other data or another partition (see its "
            "partition.json). Name the folder of its data with --data-dir."
        )
    return Trained(stored, fed, state)


def _placed_here(fed: Federation) -> Federation:
    if fed.engine.device == "cpu":
        return fed
    return replace(fed, engine=fed.engine.model_copy(update={"device": resolved("auto")}))


def _configuration(run: RunResult, model: nn.Module | None) -> RunConfig:
    """Return the run's configuration, with the module in it where the run was given one."""
    content: dict[str, Any] = {key: value for key, value in run.config.items() if key not in NOTED_BY_ENGINE}
    named = content["task"]["model"]
    name = named["name"] if isinstance(named, dict) else named
    if not name.startswith(OBJECT):
        if model is not None:
            raise ConfigError(
                f"model is an object of type {type(model).__name__}, but the run in {str(run.path)!r} was "
                f"made with {name!r}, which is built again by its name. Leave model out."
            )
        return RunConfig(**content)
    if model is None:
        raise ConfigError(
            f"model of the run in {str(run.path)!r} is {name!r}, but that is a Python object, of which the "
            "folder holds the name alone. Hand the same module over in Python: "
            "ww.export(run, ..., model=module)."
        )
    config = RunConfig(**{**content, "task": {**content["task"], "model": model}})
    if config.hash() != run.config["config_hash"]:
        raise ConfigError(
            f"model is {config.task.model_spec().name!r}, but the run in {str(run.path)!r} was given "
            f"{name!r}. Hand over the module that it was given, with the weights that it started from."
        )
    return config
