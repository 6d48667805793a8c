"""The command ``widthwise study``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widthwise.cli_errors import interrupted, say, warn
from widthwise.cli_estimate import show_estimate
from widthwise.cli_inspect import coverage_notes
from widthwise.cli_options import DataDir, Json
from widthwise.cli_show import results_table, show, stderr, unmet_budgets

if TYPE_CHECKING:
    from widthwise.engine import Federation
    from widthwise.studies import Outcome
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
    warn(run.config.engine.warning for run in planned)
    if dry_run:
        show_estimate(planned, folder, jobs, data_dir, json)
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
    warn(unmet_budgets(results))
    if failed:
        say("error", f"{len(failed)} of {len(outcomes)} runs failed; run the same command to try them again.")
    if results:  # after the results, which are worth more
        say("report", build_study_report(folder, page))
    if failed:
        raise typer.Exit(1)


def notes(federation: Federation) -> list[tuple[str, str]]:
    """Return what a reader should know of a run before it starts."""
    return coverage_notes(federation.space, federation.method, federation.population)


def _integers(text: str | None) -> list[int]:
    if text is None:
        return []
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of whole numbers such as 42,43,44") from None
