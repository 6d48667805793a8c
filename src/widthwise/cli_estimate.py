"""What runs will cost, as a table: ``--dry-run`` of ``widthwise run`` and ``widthwise study``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from widthwise.cli_errors import say
from widthwise.cli_show import show

if TYPE_CHECKING:
    from widthwise.studies import PlannedRun
    from widthwise.studies.estimate import Estimate


def show_estimate(
    planned: Sequence[PlannedRun], folder: Path, jobs: int, data_dir: Path | None, json: bool
) -> None:
    """Print what runs will cost, or as JSON. Ends with exit code 2 if some cannot start.

    Args:
        planned: The runs, each after the one that it is matched to.
        folder: What their folders are in.
        jobs: How many cores work on them.
        data_dir: Folder of local data files.
        json: Print JSON.
    """
    from widthwise.studies.estimate import estimate_study

    estimates = estimate_study(planned, data_dir)
    show(
        _estimate_table(planned, estimates, folder, jobs),
        _estimate_data(planned, estimates, folder, jobs),
        json,
    )
    problems = dict.fromkeys(estimate.problem for estimate in estimates if estimate.problem)
    for problem in problems:
        say("cannot start", problem)
    if problems:
        raise typer.Exit(2)


def _estimate_data(
    planned: Sequence[PlannedRun], estimates: Sequence[Estimate], folder: Path, jobs: int
) -> dict[str, Any]:
    runs = [
        {
            "path": run.path.relative_to(folder).as_posix(),
            "task": run.task,
            "label": run.label,
            "seed": run.config.seed,
            "config_hash": run.config.hash(),
            **asdict(estimate),
        }
        for run, estimate in zip(planned, estimates, strict=True)
    ]
    return {"runs": runs, "jobs": jobs, "hours_left": _hours_left(estimates, jobs)}


def _estimate_table(
    planned: Sequence[PlannedRun], estimates: Sequence[Estimate], folder: Path, jobs: int
) -> Table:
    done = sum(estimate.state == "finished" for estimate in estimates)
    stuck = sum(estimate.problem is not None for estimate in estimates)
    private = any(estimate.epsilon is not None for estimate in estimates)
    head = ("run", "state", "rounds", "mean width", "GMACs", "MB", "seconds a round", "minutes")
    table = Table(
        *head,
        *(["epsilon"] if private else []),
        title=f"{len(planned)} run{'s' * (len(planned) > 1)} in {folder}",
        caption=(
            f"{done} finished{f', {stuck} cannot start' * (stuck > 0)}; about {_left(estimates, jobs)} left "
            f"on {jobs} core{'s' * (jobs > 1)}, if the machine does nothing else. Seconds and minutes are "
            "those of one core. Widths are simulated at equal heterogeneity; time is extrapolated from a few "
            "batches of each width."
        ),
    )
    for run, estimate in zip(planned, estimates, strict=True):
        name = run.path.relative_to(folder).as_posix()
        if estimate.problem:
            table.add_row(name, "cannot start")
            continue
        table.add_row(
            name,
            estimate.state,
            f"{estimate.rounds_done}/{run.config.training.rounds}",
            f"{estimate.mean_width:.2f}",
            f"{estimate.macs / 1e9:,.0f}",
            f"{estimate.bytes / 1e6:,.0f}",
            f"{estimate.seconds / run.config.training.rounds:.1f}",
            f"{estimate.seconds / 60:.1f}",
            *([_epsilon(run, estimate)] if private else []),
        )
    return table


def _epsilon(run: PlannedRun, estimate: Estimate) -> str:
    if run.config.privacy is None or estimate.epsilon is None:
        return "none promised"
    return f"{estimate.epsilon:.2f} at {run.config.privacy.delta:g}"


def _hours_left(estimates: Sequence[Estimate], jobs: int) -> float:
    return sum(estimate.seconds_left for estimate in estimates) / jobs / 3600


def _left(estimates: Sequence[Estimate], jobs: int) -> str:
    hours = _hours_left(estimates, jobs)
    if hours >= 1:
        return f"{hours:.1f} hours"
    return f"{60 * hours:.0f} minutes" if hours >= 1 / 30 else f"{3600 * hours:.0f} seconds"
