"""Studies: the same task under several methods, seeds and settings, each run in its own folder."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from widthwise.core.errors import ConfigError, InputError, unknown_name
from widthwise.engine import is_run
from widthwise.methods import problems
from widthwise.studies.config import RunConfig, merge, read_yaml
from widthwise.studies.control import refuse_other
from widthwise.studies.expected import expected_names, load_expected

#: What a label of a task or a method may be.
LABEL = r"[\w+=-]+"


class StudyTask(BaseModel):
    """One task of a study.

    Attributes:
        title: Name in tables; the task's label where it is empty.
        base: What differs from the study's base (nested or with dotted keys).
        methods: Labels of the methods that are run on it; all where None.
        changes: Label of a method -> what differs for it on this task (laid over everything else).
        paper: Which of the paper's tasks its results stand beside (a key of the expected numbers).
        note: What a reader of its results must know.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    base: dict[str, Any] = Field(default_factory=dict)
    methods: list[str] | None = Field(None, min_length=1)
    changes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    paper: str | None = None
    note: str = ""


class Study(BaseModel):
    """Runs that belong together: tasks x methods x seeds x the values of a sweep.

    Attributes:
        title: Heading of the report.
        note: What a reader of all its results must know.
        base: Configuration that all runs share.
        tasks: Label -> a task; without any, the base's task is the only one.
        methods: Label -> what differs from base and task (nested or with dotted keys).
        seeds: Every method is run on every task once for each seed.
        sweep: Dotted key -> values; every run is made for every combination.
        paper: Name of a paper's expected numbers, which the report puts beside ours.
        profiles: Name -> changes to the study (all keys above), chosen on the command line. A task or a
            method that is null is left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    note: str = ""
    base: dict[str, Any]
    tasks: dict[str, StudyTask] = Field(default_factory=dict)
    methods: dict[str, dict[str, Any]] = Field(min_length=1)
    seeds: list[Annotated[int, Field(strict=True, ge=0)]] = Field([42], min_length=1)
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)
    paper: str | None = None
    profiles: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError("\n".join(problems(error, type(self)))) from None

    @field_validator("tasks", "methods", mode="before")
    @classmethod
    def _without_null(cls, value: Any) -> Any:
        return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value

    @field_validator("tasks", "methods")
    @classmethod
    def _labels_name_folders(cls, value: dict[str, Any]) -> dict[str, Any]:
        seen: dict[str, str] = {}
        for label in value:
            if not re.fullmatch(LABEL, label):
                raise ValueError(
                    f"label is {label!r}, but it names a folder: letters, digits and _ + = - only. Rename it."
                )
            if (other := seen.setdefault(label.casefold(), label)) != label:
                raise ValueError(
                    f"label is {label!r}, but there is {other!r}, and where capital letters make no "
                    "difference both name one folder. Rename one of them."
                )
        return value

    @field_validator("seeds")
    @classmethod
    def _every_seed_once(cls, value: list[int]) -> list[int]:
        if len(set(value)) < len(value):
            raise ConfigError(f"seeds is {value}, but a seed makes one run. Name each seed once.")
        return value

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        for label, task in self.tasks.items():
            known = {"methods": list(self.methods), "changes": self.methods_of(label)}
            for key, names in (("methods", task.methods or ()), ("changes", task.changes)):
                for name in names:
                    if name not in known[key]:
                        raise ConfigError(unknown_name(f"tasks.{label}.{key}", name, known[key]))
        if self.paper is not None and self.paper not in expected_names():
            raise ConfigError(unknown_name("paper", self.paper, expected_names()))
        papers = load_expected(self.paper).tasks if self.paper else {}
        for label, task in self.tasks.items():
            if task.paper is not None and task.paper not in papers:
                raise ConfigError(unknown_name(f"tasks.{label}.paper", task.paper, papers))
        return self

    def methods_of(self, task: str) -> list[str]:
        """Return the labels of the methods that are run on a task, in the study's order."""
        chosen = self.tasks[task].methods if task in self.tasks else None
        return [label for label in self.methods if chosen is None or label in chosen]


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study.

    Attributes:
        path: Its folder.
        label: Its method's label, with the values of a sweep.
        config: Its configuration.
        task: Its task's label; empty where the study has one task only.
    """

    path: Path
    label: str
    config: RunConfig
    task: str = ""

    @property
    def where(self) -> str:
        """Its place in the study, which its seed does not change."""
        return _where(self.task, self.label)

    @property
    def source(self) -> Path | None:
        """Folder of the run that it is matched to, which must be finished first."""
        return Path(self.config.matched_to) if self.config.matched_to else None


def bundled_studies() -> list[str]:
    """Return the names of the studies that come with the package."""
    folder = resources.files("widthwise.studies") / "bundled"
    return sorted(Path(item.name).stem for item in folder.iterdir() if item.name.endswith(".yaml"))


def study_file(name: str) -> Path:
    """Return the file of a bundled study, or of one of the user's own.

    Raises:
        ConfigError: for an unknown name.
    """
    if name in bundled_studies():
        return Path(str(resources.files("widthwise.studies") / "bundled" / f"{name}.yaml"))
    if Path(name).is_file():
        return Path(name)
    raise ConfigError(f"{unknown_name('study', name, bundled_studies())} A YAML file works too.")


def load_study(name: str, profile: str | None = None, seeds: Sequence[int] = ()) -> Study:
    """Read a study by name or from a YAML file.

    Args:
        name: A bundled study's name, or a file.
        profile: One of the study's profiles.
        seeds: Replaces the study's seeds.

    Raises:
        ConfigError: for an unknown name or profile, or an invalid file.
    """
    content = read_yaml(study_file(name))
    if profile is not None:
        content = _with_profile(content, profile)
    if seeds:
        content["seeds"] = list(seeds)
    return Study(**content)


def _with_profile(content: dict[str, Any], name: str) -> dict[str, Any]:
    profiles = content.get("profiles")
    if not isinstance(profiles, dict) or not profiles:
        raise ConfigError(f"profile is {name!r}, but the study has no profiles. Leave out --profile.")
    if name not in profiles:
        raise ConfigError(unknown_name("profile", name, profiles))
    changes = profiles[name]
    if not isinstance(changes, dict):
        raise ConfigError(
            f"profiles.{name} is {changes!r}, but a profile is a mapping of changes. Write {{}} for none."
        )
    for section in ("tasks", "methods"):
        there, removed = content.get(section) or {}, changes.get(section) or {}
        for label in removed if isinstance(removed, dict) and isinstance(there, dict) else ():
            if removed[label] is None and label not in there:
                raise ConfigError(unknown_name(f"profiles.{name}.{section}", label, there))
    merged = merge(content, changes)
    if content.get("tasks") and not any(task is not None for task in merged["tasks"].values()):
        raise ConfigError(f"profiles.{name}.tasks leaves no task, but a study needs one. Keep one.")
    return merged


def plan(study: Study, out: Path) -> list[PlannedRun]:
    """Return the runs of a study, all validated: seed by seed, so that a part of them is a study as well.

    A run lies in ``<out>/<task>/<label>-s<seed>``, without the task's folder where the study names none.
    ``matched_to`` may name a method of the study: it then means that method's run of the same task, seed
    and setting, which is planned before it.

    Args:
        study: The study.
        out: Folder of all run folders.

    Raises:
        ConfigError: if any run is invalid; each problem carries the task and label where it comes up first,
            and the number of others that have it too.
    """
    found: dict[str, dict[str, None]] = {}  # problem -> where; another seed would say the same
    planned: list[PlannedRun] = []
    invalid: set[Path] = set()
    settings = list(_settings(study.sweep))
    for seed, task, (suffix, setting) in itertools.product(study.seeds, study.tasks or [""], settings):
        of_task = study.tasks.get(task, StudyTask())
        base = merge(merge(merge({}, study.base), of_task.base), setting)
        for label in study.methods_of(task):
            changes = of_task.changes.get(label, {})
            content = merge(merge(base, study.methods[label]), changes)
            own_seed = content.get("seed")
            content["seed"] = seed
            _point_to_run(content, study.methods_of(task), out / task, f"{suffix}-s{seed}")
            path = out / task / f"{label}{suffix}-s{seed}"
            try:
                _refuse_overridden(setting, content, own_seed)
                config = RunConfig(**content)
            except InputError as error:
                invalid.add(path)
                for line in str(error).splitlines():
                    found.setdefault(line, {})[_where(task, label + suffix)] = None
                continue
            planned.append(PlannedRun(path, label + suffix, config, task))
    for where, problem in _problems_between(planned, invalid):
        found.setdefault(problem, {})[where] = None
    if found:
        raise ConfigError("\n".join(f"{_first(places)}: {problem}" for problem, places in found.items()))
    return _sources_first(planned)


def _where(task: str, label: str) -> str:
    return "/".join(filter(None, [task, label]))


def _first(places: Mapping[str, None]) -> str:
    first, *others = places
    return f"{first} and {len(others)} more" if others else first


def _refuse_overridden(setting: Mapping[str, Any], content: Mapping[str, Any], own_seed: object) -> None:
    """Refuse what something else replaces: a label or a file would name what was not run."""
    if own_seed is not None and "seed" not in setting:
        raise ConfigError(f"seed is {own_seed!r}, but the study's seeds replace it. Write it under seeds.")
    for key, value in setting.items():
        if merge(content, {key: value}) != content:
            raise ConfigError(
                f"sweep.{key} is {value!r}, but the method, the task's changes or the seed replace it. "
                "Remove the key there, or from the sweep."
            )


def _problems_between(planned: Sequence[PlannedRun], invalid: set[Path]) -> Iterator[tuple[str, str]]:
    """Yield (where, what is wrong) between runs that are each valid: a shared folder, an impossible match."""
    by_path = {run.path: run for run in planned}
    folders: set[str] = set()
    for run in planned:
        folder = str(run.path).casefold()  # as file systems have it that know no capital letters
        if folder in folders:
            yield (
                run.where,
                f"two runs have the folder {run.path.name!r}, but each needs its own. "
                "Give the sweep values that look different.",
            )
        folders.add(folder)
    for run in planned:
        if run.source in by_path:
            try:
                refuse_other(run.config, by_path[run.source].config)
            except ConfigError as error:
                yield run.where, str(error)
        elif run.source is not None and run.source not in invalid and not is_run(run.source):
            yield (
                run.where,
                f"matched_to is {str(run.source)!r}, but that is neither a method that is run on this task "
                "nor the folder of a run. Correct it.",
            )


def _point_to_run(content: dict[str, Any], labels: Sequence[str], folder: Path, ending: str) -> None:
    """Replace a label of the study in ``matched_to`` by the path of that label's run."""
    for section in ("method", "control"):
        block = content.get(section)
        if isinstance(block, dict) and block.get("matched_to") in labels:
            content[section] = {**block, "matched_to": str(folder / f"{block['matched_to']}{ending}")}


def _sources_first(planned: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Return the runs in their order, but each after the run that it is matched to."""
    by_path = {run.path: run for run in planned}
    ordered: dict[Path, PlannedRun] = {}

    def add(run: PlannedRun, waiting: tuple[Path, ...]) -> None:
        if run.path in waiting:
            raise ConfigError(
                f"{run.where}: matched_to goes round in a circle, but a run can be matched only to another "
                "one. Name a run that is not matched itself."
            )
        if run.source in by_path:
            add(by_path[run.source], (*waiting, run.path))
        ordered.setdefault(run.path, run)

    for run in planned:
        add(run, ())
    return list(ordered.values())


def _settings(sweep: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (suffix of the label, overrides) for every combination; one empty one without a sweep."""
    for values in itertools.product(*sweep.values()):
        setting = dict(zip(sweep, values, strict=True))
        suffix = "".join(f"-{key.rpartition('.')[2]}={value}" for key, value in setting.items())
        yield re.sub(r"[^\w.=+-]+", "_", suffix), setting  # it becomes part of a folder's name
