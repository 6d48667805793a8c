"""From a configuration to a run: everything is built and checked before anything is written."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from widthwise.core.errors import ConfigError, some
from widthwise.engine import Federation, RunResult, Sink, run_federation
from widthwise.slicing import WidthSpace, trace
from widthwise.studies.config import RunConfig
from widthwise.studies.control import resolve
from widthwise.tasks import Task, build_task
from widthwise.training import running_statistics


def build(config: RunConfig, data_dir: Path | None = None, label: str | None = None) -> Federation:
    """Load the data, build the model, trace it, and return what the engine runs.

    Args:
        config: The run.
        data_dir: Folder of local data files; it wins over ``task.data_dir`` and ``WIDTHWISE_DATA``.
        label: Name of the run in tables; by default ``config.name``.

    Raises:
        InputError: if anything in the configuration, the data or the model is wrong.
    """
    label = label or config.name
    config = resolve(config)
    task = build_task(config.task, config.capacity, config.seed, data_dir)
    federation = Federation(
        task=task,
        space=trace_task(config, task),
        method=config.built_method,
        training=config.training,
        engine=config.engine,
        seed=config.seed,
        config=config.to_dict(),
        config_hash=config.hash(),
        label=label,
        compression=config.compression,
        privacy=config.privacy,
    )
    federation.epsilon(1)  # refuses privacy without its accountant
    federation.method.policy.init(federation.population)  # refuses what these capacities cannot meet
    return federation


def trace_task(config: RunConfig, task: Task) -> WidthSpace:
    """Return the width space of a run's model.

    Raises:
        InputError: if the model cannot be traced, or does not fit the configuration.
    """
    model = task.build_model(config.seed)
    _refuse_running_statistics(config, model, task)
    space = trace(model, task.example_inputs(), **task.tracing)
    if not any(layout.tensor.requires_grad for layout in space.parameters.values()):
        raise ConfigError(
            "no parameter of the model has requires_grad=True, but those are what clients train. "
            "Set it for some of them."
        )
    if not space.groups and task.tiers[0] < 1:
        raise ConfigError(
            f"the smallest capacity is {task.tiers[0]:g}, but no channel of the model can be cut: every "
            "client would train all of it. Give all clients capacity 1, or see with widthwise trace what is "
            "cut together."
        )
    return space


def _refuse_running_statistics(config: RunConfig, model: nn.Module, task: Task) -> None:
    if config.training.batch_norm != "refuse" and config.privacy is None:
        return
    found = some(list(running_statistics(model, task.example_inputs())), most=3)
    if found and config.training.batch_norm == "refuse":
        raise ConfigError(
            f"training.batch_norm is 'refuse', but the model has running statistics ({found}) "
            "that no two widths share. Choose another norm for the model, or batch_norm: recalibrate."
        )
    if found:
        raise ConfigError(
            f"privacy is set, but the model has running statistics ({found}), which are estimated from the "
            "clients' samples without noise and stored with the trained model. Choose another norm for it."
        )


def run(
    config: RunConfig,
    out: Path | str,
    *,
    resume: bool = False,
    data_dir: Path | str | None = None,
    sinks: Sequence[Sink] = (),
    label: str | None = None,
) -> RunResult:
    """Train one run. Warns where ``engine.precision`` is slow on the device.

    Args:
        config: The run.
        out: Folder to write.
        resume: Continue the run that this folder holds.
        data_dir: Folder of local data files.
        sinks: Further receivers of the run's events.
        label: Name of the run in tables.

    Returns:
        The finished run, as `widthwise.load_run` reads it.

    Raises:
        InputError: for bad input; nothing has been written.
        RunError: if the run failed on the way.
    """
    if config.engine.warning is not None:
        warnings.warn(config.engine.warning, stacklevel=2)
    federation = build(config, Path(data_dir) if data_dir else None, label)
    return run_federation(federation, Path(out), resume=resume, sinks=sinks)
