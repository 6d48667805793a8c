"""From a configuration file, Flower's run-config and what nodes say, to what is run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from flwr.app import UserConfig

from widthwise.core.seeds import SeedTree
from widthwise.deploy.exchange import LOG
from widthwise.deploy.roster import Claim
from widthwise.studies.config import RunConfig, load_config
from widthwise.tasks import CapacityConfig

OUT, ROUNDS = "out", "rounds"


def overrides(run_config: UserConfig) -> tuple[str, ...]:
    """Return a run-config as overrides of the configuration: its keys are dotted keys.

    Short for ``training.rounds`` is ``rounds``; ``out`` is left aside, since it names the run folder. A text
    is read as YAML, so that ``"[0.5, 1.0]"`` is a list.

    Example:
        >>> overrides({"rounds": 3, "out": "runs/x", "task.augment": True, "capacity.list": "[0.5, 1.0]"})
        ('capacity.list=[0.5, 1.0]', 'task.augment=true', 'training.rounds=3')
    """
    keys = {("training.rounds" if k == ROUNDS else k): v for k, v in run_config.items() if k != OUT}
    return tuple(sorted(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in keys.items()))


def configured(path: Path, run_config: UserConfig) -> tuple[RunConfig, Path]:
    """Return the configuration under a run-config, and the run folder.

    Raises:
        ConfigError: for anything that ``load_config`` refuses.
    """
    config = load_config(path, overrides(run_config))
    return config, Path(str(run_config[OUT])) if OUT in run_config else config.folder(path.stem)


def identity(config: RunConfig) -> str:
    """Return what server and nodes must agree on, as a hash: all but where each of them computes."""
    engine = config.engine.model_copy(update={"device": "cpu"})
    return config.model_copy(update={"engine": engine}).hash()


def settled(config: RunConfig, claims: Iterable[Claim]) -> RunConfig:
    """Return the configuration with the capacities that nodes have stated.

    A stated capacity counts as it is, but at most as much as ``capacity.list`` allows the client where the
    configuration has such a list. A client whose node states none, or that has no node yet, keeps what the
    configuration gives it. Where nothing differs the configuration stays the same, with its hash.

    Args:
        config: The configuration.
        claims: What the nodes say.
    """
    capacities = config.capacity.draw(config.task.clients, SeedTree(config.seed)).tolist()
    changed = list(capacities)
    for claim in claims:
        if claim.capacity is None:
            continue
        limit = capacities[claim.client] if config.capacity.list is not None else 1.0
        changed[claim.client] = min(claim.capacity, limit)
        if claim.capacity > limit:
            LOG.warning("client %d states capacity %g, capped at %g", claim.client, claim.capacity, limit)
    if changed == capacities:
        return config
    return config.model_copy(update={"capacity": CapacityConfig(list=tuple(changed))})


def stored(config: RunConfig, out: Path) -> RunConfig | None:
    """Return the configuration with the capacities of the run in a folder; None where there is none."""
    file = out / "config.yaml"
    if not file.is_file():
        return None
    return config.model_copy(update={"capacity": load_config(file).capacity})
