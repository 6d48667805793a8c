"""The command ``widthwise``: the other commands are in ``cli_study``, ``cli_ship`` and ``cli_inspect``.

Commands import what they use when they run: torch takes seconds to import, and ``--help`` needs none of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widthwise.cli_deploy import deploy
from widthwise.cli_errors import Commands, explained, save_on_sigterm, say, warn
from widthwise.cli_estimate import show_estimate
from widthwise.cli_inspect import coverage_notes, register
from widthwise.cli_options import DataDir, Json
from widthwise.cli_probe import probe
from widthwise.cli_ship import evaluate, export
from widthwise.cli_show import results_table, show, stderr, unmet_budgets
from widthwise.cli_study import study

if TYPE_CHECKING:
    from widthwise.engine import Federation, RunResult

app = typer.Typer(
    cls=Commands,
    help="Train one model across devices of every size, and audit what the slicing did.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a key, e.g. --set training.lr=0.1 or --set engine.precision=bf16. "
        "`widthwise schema` prints all of them.",
    ),
]
Folders = Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold them.")]


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="YAML file of the run; see examples/.")],
    set_: Set = None,
    model: Annotated[
        str | None, typer.Option(help="A registered model or module:factory, for task.model and task.norm.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Root of all random draws.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; by default runs/CONFIG-METHOD-sSEED.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it will cost, then stop.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Train one run."""
    from widthwise.report import build_report
    from widthwise.studies import PlannedRun, build, load_config

    chosen = [] if model is None else [f"task.model={model}", "task.norm=null"]
    overrides = [*chosen, *(set_ or []), *([f"seed={seed}"] if seed is not None else [])]
    settings = load_config(config, overrides)
    folder = out or settings.folder(config.stem)
    warn([settings.engine.warning])
    if dry_run:
        planned = [PlannedRun(folder, settings.method["name"], settings)]
        workers = 1 if settings.engine.executor == "serial" else settings.engine.workers
        show_estimate(planned, folder.parent, min(workers, settings.training.cohort), data_dir, json)
        return
    result = _train(build(settings, data_dir), folder, resume)
    page = build_report([folder], folder / "report.html")
    show(results_table([result]), result.result, json)
    warn(unmet_budgets([result]))
    if spent := (result.result or {}).get("privacy"):
        say(
            "privacy",
            f"epsilon {spent['epsilon']:.2f} at delta {spent['delta']:g} for the data of each client",
        )
    say("run folder", folder)
    say("report", page)


@app.command()
def report(
    folders: Folders,
    out: Annotated[Path | None, typer.Option(help="The page to write.")] = None,
) -> None:
    """Write one HTML page, and figures as PDF, from stored runs. A study's folder gives its own report."""
    from widthwise.report import build_report, build_study_report, report_paths
    from widthwise.studies.manifest import is_study

    if len(folders) == 1 and is_study(folders[0]):
        print(build_study_report(folders[0], out))
        return
    runs, default = report_paths(folders)
    print(build_report(runs, out or default))


@app.command()
def audit(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Run folders, or folders that hold them.")
    ] = None,
    table: Annotated[Path | None, typer.Option(help="A CSV file of clients instead of runs.")] = None,
    json: Json = False,
) -> None:
    """Say what a client statistic measured: capacity or data. Of runs, it is the heterogeneity estimate.

    A table made elsewhere has the columns client, statistic, capacity and divergence, and where wanted width,
    run and seed.
    """
    from widthwise.audit import audit as audit_runs
    from widthwise.audit import audit_csv

    if bool(folders) == (table is not None):
        problem = "Run folders and --table exclude each other" if folders else "Missing argument"
        raise typer.BadParameter(f"{problem}: name run folders, or one CSV file with --table.")
    if table:
        found = audit_csv(table)
    else:
        from widthwise.report import report_paths  # a table needs none of what a report loads

        found = audit_runs(report_paths(folders or [])[0])
    show(found, found.to_json(), json)


for command in (study, probe, evaluate, export):
    app.command()(command)
app.add_typer(deploy, name="deploy")
register(app)


def _train(federation: Federation, out: Path, resume: bool) -> RunResult:
    """Run with live progress, after a warning about what would never be trained."""
    from widthwise.cli_progress import ProgressSink
    from widthwise.engine import run_federation

    for kind, text in coverage_notes(federation.space, federation.method, federation.population):
        say(kind, text)
    with explained(out), ProgressSink(stderr()) as progress:
        return run_federation(federation, out, resume=resume, sinks=[progress])


def main() -> None:
    """Entry point of the command."""
    save_on_sigterm()
    app()


if __name__ == "__main__":
    main()
