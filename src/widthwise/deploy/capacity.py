"""What a node says that it can train: as it is told, or as it has measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Context

from widthwise.core.errors import ConfigError, RunError, unknown_name
from widthwise.engine.probe import Bounds, footprint, probe

if TYPE_CHECKING:
    from widthwise.deploy.site import Site

CAPACITY, MEMORY, SECONDS = "capacity", "memory-mb", "seconds-per-step"
KEYS = ("partition-id", "num-partitions", CAPACITY, MEMORY, SECONDS)
"""What a node-config may say; the first two are set by Flower's simulation, too."""
MEASURED = "measured-capacity"
"""The record in a node's state that keeps what it has measured."""


def capacity_of(site: Site, context: Context) -> float | None:
    """Return the largest width that a node can train, or None where its node-config says nothing of it.

    ``capacity`` is taken as it is. ``memory-mb`` and ``seconds-per-step`` let the node find the largest width
    whose training step fits both (``engine.probe``): with the run's own objective and settings, on a batch of
    the client's samples, on top of what this process holds already. What it has measured stays in the node's
    state, so that a run measures once.

    Args:
        site: The run as the node knows it.
        context: Flower's: node-config and state.

    Raises:
        ConfigError: if it has one of the two bounds only, both kinds of keys, a key that nobody reads, or a
            value that is no number.
        RunError: if not even the smallest width fits.
    """
    for key in context.node_config:
        if key not in KEYS:
            raise ConfigError(unknown_name("a key of the node-config", key, KEYS))
    keys = [name for name in (CAPACITY, MEMORY, SECONDS) if name in context.node_config]
    if not keys:
        return None
    if keys not in ([CAPACITY], [MEMORY, SECONDS]):
        raise ConfigError(
            f"the node-config has {' and '.join(keys)}, but a node has either {CAPACITY}, or {MEMORY} and "
            f"{SECONDS} to measure it by. Give one or the other."
        )
    if keys == [CAPACITY]:
        return _number(context, CAPACITY)
    measured = context.state.config_records
    if MEASURED not in measured:
        bounds = Bounds(_number(context, MEMORY), _number(context, SECONDS))
        measured[MEASURED] = ConfigRecord({CAPACITY: _measured(site, site.client(context), bounds)})
    return float(str(measured[MEASURED][CAPACITY]))


def _measured(site: Site, client: int, bounds: Bounds) -> float:
    config, task = site.config, site.task
    device = config.engine.device
    here = footprint() if device == "cpu" else None  # of a CUDA device, only tensors count
    found = probe(
        site.space,
        task.build_model(config.seed),
        task.train.batch(task.partition.client(client)[: config.training.batch_size]),
        bounds,
        training=config.training.local(0, config.engine.precision),
        objective=config.built_method.objective,
        device=device,
        held=here.now if here else None,
    )
    if found.width is None:
        raise RunError(f"{found.sentence} Raise the bounds.", client=client, stage="probe")
    return found.width


def _number(context: Context, name: str) -> float:
    value = context.node_config[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(
            f"{name} in the node-config is {value!r}, but it must be a number. Write for example {name}=0.5."
        )
    return float(value)
