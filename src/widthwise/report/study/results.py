"""A study as its folder holds it: every planned run with what became of it, and the paper beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from widthwise.audit.groups import flatten
from widthwise.core.errors import CheckpointError
from widthwise.engine.runs import RunResult, is_run, load_run
from widthwise.studies.config import RunConfig
from widthwise.studies.expected import Expected, PaperResult, load_expected
from widthwise.studies.manifest import Manifest, PlannedCell, read_manifest
from widthwise.studies.relations import labels_by_method, the_one
from widthwise.studies.study import PlannedRun, StudyTask, plan

DONE = "finished"


@dataclass(frozen=True)
class Cell:
    """A planned run.

    Attributes:
        path: Its folder, relative to the study's.
        task: Its task's label.
        label: Its method's label.
        seed: Its seed.
        state: ``finished``, ``not run``, ``unfinished: 3 of 50 rounds`` or ``failed: ...``.
        run: What is stored of it, or None.
    """

    path: str
    task: str
    label: str
    seed: int
    state: str
    run: RunResult | None

    @property
    def done(self) -> bool:
        """Whether it may be counted: it has a result and did not fail when it was last tried."""
        return self.state == DONE

    @property
    def unmet(self) -> bool:
        """Whether it was to keep a budget and could not: then it is nobody's matched control."""
        control = (self.run.result or {}).get("control") if self.run else None
        return control is not None and not control["met"]


@dataclass(frozen=True)
class Task:
    """A task of the study.

    Attributes:
        label: Its label; empty where the study has one task only.
        title: Its name in tables and figures.
        note: What a reader of its results must know.
        paper: The paper's task that its results stand beside, or None.
        stand_in: Whether it is on another data set than that task: then no differences are formed.
        configs: Label of a method, with the values of a sweep -> its configuration under the first seed.
        sources: Label of a matched method -> label of the method whose runs it is matched to, or their folder
            where they are no part of the study.
        known: The paper's method -> labels that are it (``relations.labels_by_method``).
    """

    label: str
    title: str
    note: str
    paper: str | None
    stand_in: bool
    configs: Mapping[str, RunConfig]
    sources: Mapping[str, str]
    known: Mapping[str, tuple[str, ...]]

    @property
    def methods(self) -> list[str]:
        """Labels of its methods, in the study's order."""
        return list(self.configs)

    def label_of(self, method: str) -> str | None:
        """Return the one label that is a method of the paper, or None."""
        return the_one(method, self.known)

    def labels_of(self, methods: Sequence[str]) -> list[str]:
        """Return the labels that are these methods of the paper; where none is one, its name there."""
        return [label for method in methods for label in self.known.get(method) or (method,)]

    def method_of(self, label: str) -> str | None:
        """Return which method of the paper a label is, or None where it is none."""
        return next((method for method, labels in self.known.items() if label in labels), None)


@dataclass(frozen=True)
class StudyResults:
    """All that the report is made from."""

    manifest: Manifest
    expected: Expected | None
    tasks: tuple[Task, ...]
    cells: tuple[Cell, ...]

    def of(self, task: str, label: str) -> list[Cell]:
        """Return the planned runs of a method on a task in order of their seeds."""
        return [cell for cell in self.cells if (cell.task, cell.label) == (task, label)]

    def runs(self, task: str, label: str) -> dict[int, RunResult]:
        """Return the finished runs of a method on a task by seed."""
        return {cell.seed: cell.run for cell in self.of(task, label) if cell.done and cell.run is not None}

    def comparable(self, task: str, label: str) -> dict[int, RunResult]:
        """Return the finished runs that stand in comparisons: those that kept the budget they had, if any."""
        unmet = {cell.seed for cell in self.of(task, label) if cell.unmet}
        return {seed: run for seed, run in self.runs(task, label).items() if seed not in unmet}

    def labels(self) -> list[str]:
        """Return all method labels in the study's order."""
        return list(dict.fromkeys(label for task in self.tasks for label in task.methods))

    def paper(self, task: Task, label: str) -> PaperResult | None:
        """Return the paper's row for a method on a task, or None."""
        method = task.method_of(label)
        return self.expected.result(task.paper, method) if self.expected and method else None

    def paper_tasks(self, keys: Sequence[str]) -> Iterator[Task]:
        """Yield the study's tasks that stand beside these tasks of the paper, in the paper's order."""
        for key in keys:
            yield from (task for task in self.tasks if task.paper == key)


def read_study(folder: Path) -> StudyResults:
    """Read a study's manifest and all of its runs.

    A run whose folder is damaged counts as failed: the others are still worth a report.

    Raises:
        CheckpointError: if there is no manifest in the folder, or it is damaged.
        ConfigError: if the manifest names an unknown paper, or a configuration is not valid any more.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise CheckpointError(
            f"folder is {str(folder)!r}, but it holds no study.json. "
            "Give the folder that a study was run into."
        )
    study = manifest.study
    expected = load_expected(study.paper) if study.paper else None
    planned = {run.path: run for run in plan(study, folder)}
    cells = [_cell(folder, cell, planned.get(folder / cell.path)) for cell in manifest.runs]
    tasks = tuple(
        _task(label, study.tasks.get(label, StudyTask()), expected, planned)
        for label in list(study.tasks) or [""]
    )
    return StudyResults(manifest, expected, tasks, tuple(sorted(cells, key=lambda cell: cell.path)))


def _task(
    label: str, chosen: StudyTask, expected: Expected | None, planned: Mapping[Path, PlannedRun]
) -> Task:
    first: dict[str, PlannedRun] = {}
    for run in planned.values():
        if run.task == label:
            first.setdefault(run.label, run)
    configs = {method: run.config for method, run in first.items()}
    sources = {
        method: planned[run.source].label if run.source in planned else str(run.source)
        for method, run in first.items()
        if run.source is not None
    }
    dataset = next(iter(configs.values())).task.dataset
    known = expected.tasks.get(chosen.paper or "") if expected else None
    return Task(
        label=label,
        title=chosen.title or label or dataset,
        note=chosen.note,
        paper=chosen.paper if known else None,
        stand_in=known not in (None, dataset),
        configs=configs,
        sources=sources,
        known=labels_by_method(expected.methods, configs, sources) if expected else {},
    )


def _cell(folder: Path, planned: PlannedCell, now: PlannedRun | None) -> Cell:
    run: RunResult | None = None
    state = "not run"
    try:
        if is_run(folder / planned.path):
            run = load_run(folder / planned.path)
            state = (_other_setting(run, now.config) if now else "") or (
                DONE if run.complete else _progress(run)
            )
    except CheckpointError as error:
        state = f"failed: {error}"
    if planned.error is not None and state != DONE:
        state = f"failed: {planned.error.splitlines()[0]}"
    return Cell(planned.path, planned.task, planned.label, planned.seed, state, run)


def _other_setting(run: RunResult, config: RunConfig) -> str:
    """Return how a stored run differs from the one that the study plans now, or nothing where it does not."""
    stored, now = flatten(run.config), flatten(config.identity())
    matched = ("method.", "control.") if config.matched_to else ()  # resolved when the run was started
    for key, value in now.items():
        if not key.startswith(matched) and key in stored and stored[key] != value:
            return f"other configuration: {key} {stored[key]}, now {value}"
    return ""


def _progress(run: RunResult) -> str:
    training: Mapping[str, object] = run.config.get("training", {})
    return f"unfinished: {len(run.rounds)} of {training.get('rounds', '?')} rounds"
