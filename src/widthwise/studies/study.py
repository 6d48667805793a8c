"""Studies: the same task under several methods, seeds and settings, each run in its own folder."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from widthwise.core.errors import ConfigError, InputError, WidthwiseError, unknown_name
from widthwise.engine import RunResult, is_run, load_run
from widthwise.methods import problems
from widthwise.studies.build import resolve
from widthwise.studies.config import RunConfig, merge, read_yaml


class Study(BaseModel):
    """Runs that belong together.

    Attributes:
        title: Heading of the report.
        base: Configuration that all runs share.
        methods: Label -> what differs from the base (nested or with dotted keys).
        seeds: Every label is run once for each seed.
        sweep: Dotted key -> values; every label is run for every combination.
        profiles: Name -> changes to the study (all keys above), chosen on the command line.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    base: dict[str, Any]
    methods: dict[str, dict[str, Any]] = Field(min_length=1)
    seeds: list[int] = Field([42], min_length=1)
    sweep: dict[str, list[Any]] = Field(default_factory=dict)
    profiles: dict[str, dict[str, Any]] = Field(default_factory=dict)


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study: its label, its folder and its configuration."""

    label: str
    path: Path
    config: RunConfig


@dataclass(frozen=True)
class Outcome:
    """What became of a planned run: it is done, was skipped since it was finished before, or failed."""

    planned: PlannedRun
    state: Literal["done", "skipped", "failed"]
    result: RunResult | None = None
    error: WidthwiseError | None = None


#: Starts one run: (planned run, whether its folder holds a part of it already) -> its result.
Start = Callable[[PlannedRun, bool], RunResult]


def bundled_studies() -> list[str]:
    """Return the names of the studies that come with the package."""
    folder = resources.files("widthwise.studies") / "bundled"
    return sorted(Path(item.name).stem for item in folder.iterdir() if item.name.endswith(".yaml"))


def load_study(name: str, profile: str | None = None, seeds: Sequence[int] = ()) -> Study:
    """Read a study by name or from a YAML file.

    Args:
        name: A bundled study's name, or a file.
        profile: One of the study's profiles.
        seeds: Replaces the study's seeds.

    Raises:
        ConfigError: for an unknown name or profile, or an invalid file.
    """
    if name in bundled_studies():
        content = read_yaml(str(resources.files("widthwise.studies") / "bundled" / f"{name}.yaml"))
    elif Path(name).is_file():
        content = read_yaml(name)
    else:
        raise ConfigError(f"{unknown_name('study', name, bundled_studies())} A YAML file works too.")
    if profile is not None:
        profiles = content.get("profiles") or {}
        if profile not in profiles:
            raise ConfigError(unknown_name("profile", profile, profiles))
        content = merge(content, profiles[profile])
    if seeds:
        content["seeds"] = list(seeds)
    try:
        return Study(**content)
    except ValidationError as error:
        raise ConfigError("\n".join(problems(error, Study))) from None


def plan(study: Study, out: Path) -> list[PlannedRun]:
    """Return the runs of a study, all validated, in an order in which ``matched_to`` finds its run done.

    ``method.matched_to`` may name a label of the study: it then means that label's run of the same seed
    and setting.

    Args:
        study: The study.
        out: Folder of all run folders.

    Raises:
        ConfigError: if any run is invalid; each problem carries its label.
    """
    found: list[str] = []
    planned: list[PlannedRun] = []
    for suffix, setting in _settings(study.sweep):
        for label, changes in study.methods.items():
            for seed in study.seeds:
                content = merge(merge(merge(merge({}, study.base), setting), changes), {"seed": seed})
                method = content.get("method")
                if isinstance(method, dict) and (source := method.get("matched_to")) in study.methods:
                    content["method"] = {**method, "matched_to": str(out / f"{source}{suffix}-s{seed}")}
                try:
                    config = RunConfig(**content)
                except InputError as error:
                    found += [f"{label}{suffix}: {line}" for line in str(error).splitlines()]
                    break  # another seed would say the same
                planned.append(PlannedRun(label + suffix, out / f"{label}{suffix}-s{seed}", config))
    if found:
        raise ConfigError("\n".join(found))
    return sorted(planned, key=lambda run: run.config.method.get("matched_to") is not None)


def run_study(planned: Sequence[PlannedRun], start: Start) -> Iterator[Outcome]:
    """Run what is not finished yet, one run after the other.

    A folder whose result belongs to the same configuration is skipped; one that was broken off is resumed.
    A run that fails does not stop the others.

    Args:
        planned: The runs.
        start: Starts one run.

    Yields:
        What became of each run, as soon as it is known.
    """
    for run in planned:
        try:
            run = replace(run, config=resolve(run.config))
            finished = _finished(run)
            if finished is not None:
                outcome = Outcome(run, "skipped", result=finished)
            else:
                outcome = Outcome(run, "done", result=start(run, is_run(run.path)))
        except WidthwiseError as error:
            outcome = Outcome(run, "failed", error=error)
        yield outcome


def _settings(sweep: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (suffix of the label, overrides) for every combination; one empty one without a sweep."""
    for values in itertools.product(*sweep.values()):
        setting = dict(zip(sweep, values, strict=True))
        suffix = "".join(f"-{key.rpartition('.')[2]}={value}" for key, value in setting.items())
        yield re.sub(r"[^\w.=+-]+", "_", suffix), setting  # it becomes part of a folder's name


def _finished(run: PlannedRun) -> RunResult | None:
    if not is_run(run.path):
        return None
    stored = load_run(run.path)
    same = stored.result is not None and stored.result["config_hash"] == run.config.hash()
    return stored if same else None
