"""Matched-budget controls: a run whose allocation is random, at the cost of another run, round by round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from widthwise.allocation import Population
from widthwise.core.errors import ConfigError, some
from widthwise.core.seeds import SeedTree
from widthwise.engine import RunResult, load_run
from widthwise.engine.costs import spent_per_head
from widthwise.studies.config import NOTED_BY_ENGINE, RunConfig

#: What two runs must share so that the same clients meet in the same cohorts, each with the same capacity.
SAME_COHORTS = ("task.", "capacity.", "seed", "training.rounds", "training.cohort")
#: What a control shares with its treatment: all but where, and how often, it is computed and evaluated.
SAME_EXPERIMENT = (
    "task.",
    "capacity.",
    "seed",
    "training.",
    "method.",
    "engine.precision",
    "compression.",
    "privacy.",
)
_SHOWN = 3  # differing keys that a message spells out


def resolve(config: RunConfig) -> RunConfig:
    """Replace the name of a run to be matched by what it has spent in each round.

    A ``control`` becomes the method that it stands for: the treatment's, with the policy ``random-budget`` in
    place of its own, and with a guarantee where the treatment's policy gives its largest clients all
    of their capacity in every round. What results depends on no other folder: it can be hashed, stored
    and run again.

    Raises:
        ConfigError: if the named run is not finished, or differs in more than a treatment may.
        CheckpointError: if the folder is not a run, or is damaged.
    """
    source = config.matched_to
    if source is None:
        return config
    run = load_run(source)
    treatment = _config_of(_key(config), run)
    refuse_other(config, treatment)
    _refuse_unfinished(_key(config), run, config.training.rounds, source)
    method = dict(config.method) if config.control is None else _control_method(config)
    targets = spent_per_head(
        method["currency"], run.rounds, config.training.cohort, treatment.built_method.objective
    )
    method |= {"matched_to": treatment.hash(), "targets": targets}
    return RunConfig(**{**dict(config), "method": method, "control": None})


def _config_of(key: str, run: RunResult) -> RunConfig:
    try:
        return RunConfig(**{k: v for k, v in run.config.items() if k not in NOTED_BY_ENGINE})
    except ConfigError as error:
        raise ConfigError(
            f"{key} is {str(run.path)!r}, but its config.yaml is none of this version "
            f"({str(error).splitlines()[0]}). Run it again with this version."
        ) from error


def _control_method(config: RunConfig) -> dict[str, Any]:
    """Return the configured method with random-budget in place of its policy."""
    assert config.control is not None
    policy = config.built_method.policy
    kept = {k: v for k, v in config.method.items() if k not in type(policy).model_fields}
    return {**kept, "policy": "random-budget", "guarantee": _guarantees(config), **dict(config.control)}


def _guarantees(config: RunConfig) -> bool:
    """Return whether the policy gives all clients of the largest capacity that capacity in every round."""
    capacities = config.capacity.draw(config.task.clients, SeedTree(config.seed))
    population = Population(capacities, config.capacity.levels())
    certain = config.built_method.policy.guaranteed(population)[population.largest]
    return bool((certain >= capacities.max() - 1e-9).all())


def _key(config: RunConfig) -> str:
    return "method.matched_to" if config.control is None else "control.matched_to"


def refuse_other(config: RunConfig, treatment: RunConfig) -> None:
    """Refuse a treatment that this run cannot be matched to.

    Raises:
        ConfigError: if the two differ in more than a matched run and its treatment may.
    """
    key, shared = _key(config), SAME_COHORTS if config.control is None else SAME_EXPERIMENT
    if treatment.control is not None:
        raise ConfigError(
            f"{key} is {config.matched_to!r}, but that run is a control itself. "
            "Name the run that it controls."
        )
    ours, theirs = (dict(leaves(one.identity())) for one in (config, treatment))
    differing = [
        name for name in {**ours, **theirs} if name.startswith(shared) and ours.get(name) != theirs.get(name)
    ]
    if differing:
        told = some([f"{name} {theirs.get(name)} (here {ours.get(name)})" for name in differing], _SHOWN)
        rule = (
            "must have the same clients, cohorts and rounds"
            if config.control is None
            else "differs from its treatment in the allocation only"
        )
        raise ConfigError(
            f"{key} is {config.matched_to!r}, but a matched run {rule}, and that run has {told}. "
            "Use that run's configuration here, or name another run."
        )


def _refuse_unfinished(key: str, run: RunResult, rounds: int, source: str) -> None:
    if len(run.rounds) < rounds:
        raise ConfigError(
            f"{key} is {source!r}, but that run has {len(run.rounds)} rounds and this one {rounds}. "
            f"Finish that run first: widthwise run {Path(source) / 'config.yaml'} --out {source} --resume"
        )


def leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of nested mappings."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
