"""The command ``widthwise study``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from widthwise.cli_errors import interrupted, say
from widthwise.cli_inspect import coverage_notes
from widthwise.cli_options import DataDir, Json
from widthwise.cli_show import results_table, show, stderr, unmet_budgets

if TYPE_CHECKING:
    from widthwise.engine import Federation
    from widthwise.studies import Outcome, PlannedRun
    from widthwise.studies.estimate import Estimate
    from widthwise.studies.pool import Event


def study(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A bundled study (digits, paper) or a YAML file.")
    ],
    profile: Annotated[str | None, typer.Option(help="small or paper, where the study has them.")] = None,
    seeds: Annotated[str | None, typer.Option(help="For example 42,43,44.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of all run folders; by default runs/NAME-PROFILE.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs side by side; by default one per core.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs and what they will cost, then stop.")
    ] = False,
    print_: Annotated[
        bool, typer.Option("--print", help="Print the study's file, to be copied and changed, then stop.")
    ] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Train every task, method and seed of a study, then write its report.

    Finished runs are skipped and broken ones go on where they stopped, so the same command continues a study.
    """
    from widthwise.studies import load_study, plan, study_file

    if print_:
        if profile or seeds or dry_run:
            raise typer.BadParameter(
                "--print gives the file as it is: leave --profile, --seeds and --dry-run out"
            )
        print(study_file(name).read_text(encoding="utf-8"), end="")
        return
    chosen = load_study(name, profile, _integers(seeds))
    folder = out or Path("runs") / "-".join(filter(None, [Path(name).stem, profile]))
    planned = plan(chosen, folder)
    jobs = min(jobs or os.cpu_count() or 1, len(planned))
    if dry_run:
        _estimate(planned, folder, jobs, data_dir, json)
        return

    from widthwise.cli_progress import StudyProgress
    from widthwise.engine import load_run
    from widthwise.report import build_study_report
    from widthwise.studies import ManifestWriter, RunPool, run_study

    def watch(event: Event) -> None:
        manifest.watch(event)
        progress.watch(event)

    outcomes: list[Outcome] = []
    try:
        with (
            ManifestWriter(folder, Path(name).stem, profile, chosen, planned, jobs) as manifest,
            StudyProgress(stderr(), planned, folder, jobs) as progress,
            RunPool(jobs, data_dir, notes) as pool,
        ):
            for outcome in run_study(planned, pool, watch):
                outcomes.append(outcome)
                manifest.add(outcome)
                progress.ended(outcome)
    except KeyboardInterrupt as error:
        message = f"Every finished round is in {folder}. Run the same command to go on."
        raise interrupted(error, message) from None
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    results = [load_run(outcome.planned.path) for outcome in outcomes if outcome.error is None]
    page = folder / "report.html"
    data = {
        "runs": [result.result for result in results],
        "failed": {progress.name(outcome.planned): outcome.error for outcome in failed},
        "report": str(page) if results else None,
    }
    show(results_table(results), data, json)
    for line in unmet_budgets(results):
        say("warning", line)
    if failed:
        say("error", f"{len(failed)} of {len(outcomes)} runs failed; run the same command to try them again.")
    if results:  # after the results, which are worth more
        say("report", build_study_report(folder, page))
    if failed:
        raise typer.Exit(1)


def notes(federation: Federation) -> list[tuple[str, str]]:
    """Return what a reader should know of a run before it starts."""
    return coverage_notes(federation.space, federation.method, federation.population)


def _estimate(
    planned: Sequence[PlannedRun], folder: Path, jobs: int, data_dir: Path | None, json: bool
) -> None:
    from widthwise.studies.estimate import estimate_study

    estimates = estimate_study(planned, data_dir)
    show(
        _estimate_table(planned, estimates, folder, jobs),
        _estimate_data(planned, estimates, folder, jobs),
        json,
    )
    for problem in dict.fromkeys(estimate.problem for estimate in estimates if estimate.problem):
        say("cannot start", problem)


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
    table = Table(
        *("run", "state", "rounds", "mean width", "GMACs", "MB", "minutes on a core"),
        title=f"{len(planned)} runs in {folder}",
        caption=(
            f"{done} finished; about {_hours_left(estimates, jobs):.1f} hours left with {jobs} side by side, "
            "if the machine does nothing else. Widths are simulated at equal heterogeneity; time is "
            "extrapolated from a few batches of each width."
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
            f"{estimate.seconds / 60:.1f}",
        )
    return table


def _hours_left(estimates: Sequence[Estimate], jobs: int) -> float:
    return sum(estimate.seconds_left for estimate in estimates) / jobs / 3600


def _integers(text: str | None) -> list[int]:
    if text is None:
        return []
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of whole numbers such as 42,43,44") from None
