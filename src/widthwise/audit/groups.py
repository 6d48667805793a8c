"""Which stored runs are the same experiment under another seed, and what to call it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a table of clients is audited without the engine
    from widthwise.engine.runs import RunResult

NOT_A_SETTING = ("seed", "engine", "config_hash")
_ABSENT = object()  # unlike None, which is a value


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ by nothing but their seed.

    Attributes:
        label: Name of the experiment, different for each group of one call.
        runs: Its runs in order of their seeds.
    """

    label: str
    runs: tuple[RunResult, ...]


def group_runs(runs: Sequence[RunResult]) -> list[RunGroup]:
    """Group runs by all their settings except the seed, in order of first appearance.

    Groups that would bear the same name get the settings in which they differ added to it.
    """
    found: dict[str, list[RunResult]] = defaultdict(list)
    for run in runs:
        found[json.dumps(_settings(run), sort_keys=True, default=str)].append(run)
    groups = [sorted(members, key=lambda run: run.seed) for members in found.values()]
    names = [members[0].name for members in groups]
    labels = list(names)
    for name in set(names):
        namesakes = [i for i, other in enumerate(names) if other == name]
        differing = differences([_settings(groups[i][0]) for i in namesakes])
        for i, difference in zip(namesakes, differing, strict=True):
            told = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in difference.items())
            labels[i] = f"{name} ({told})" if told else name
    return [RunGroup(label, tuple(members)) for label, members in zip(labels, groups, strict=True)]


def differences(settings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each mapping, the dotted keys whose values are not the same in all of them.

    Example:
        >>> differences([{"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}}])
        [{'b.c': 2}, {'b.c': 3}]
        >>> differences([{"a": None}, {}])
        [{'a': None}, {}]
    """
    flat = [flatten(one) for one in settings]
    keys = list(dict.fromkeys(key for one in flat for key in one))
    told = [key for key in keys if any(one.get(key, _ABSENT) != flat[0].get(key, _ABSENT) for one in flat)]
    return [{key: one[key] for key in told if key in one} for one in flat]


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one mapping with dotted keys; lists stay values."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _settings(run: RunResult) -> dict[str, Any]:
    config = {key: value for key, value in run.config.items() if key not in NOT_A_SETTING}
    # A matched control copies the widths of another run, which are other numbers under each seed.
    method = {k: v for k, v in run.config["method"].items() if k not in ("matched_to", "targets")}
    return {**config, "method": method, "name": run.name}
