"""The command ``widthwise``. Commands that train and read runs are here, the others in ``cli_inspect``.

Commands import what they use when they run: torch takes seconds to import, and ``--help`` needs none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from widthwise.cli_errors import Commands, explained, say
from widthwise.cli_inspect import coverage_notes, register
from widthwise.cli_show import show, stderr

if TYPE_CHECKING:
    from widthwise.engine import Federation, RunResult
    from widthwise.studies import PlannedRun

app = typer.Typer(
    cls=Commands,
    help="Train one model across devices of every size, and audit what the slicing did.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

DataDir = Annotated[Path | None, typer.Option(help="Folder of local Parquet files; it wins over the hub.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Change a key, e.g. --set training.lr=0.1.")]
Folders = Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold them.")]


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="YAML file of the run; see examples/.")],
    set_: Set = None,
    seed: Annotated[int | None, typer.Option(help="Root of all random draws.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder [runs/CONFIG-METHOD-sSEED].")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Train one run."""
    from widthwise.report import build_report
    from widthwise.studies import build, load_config

    overrides = [*(set_ or []), *([f"seed={seed}"] if seed is not None else [])]
    settings = load_config(config, overrides)
    folder = out or Path("runs") / f"{config.stem}-{settings.method['name']}-s{settings.seed}"
    result = _train(build(settings, data_dir), folder, resume)
    page = build_report([folder], folder / "report.html")
    show(_results([result]), result.result, json)
    say("run folder", folder)
    say("report", page)


@app.command()
def study(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A bundled study, or a YAML file.")],
    profile: Annotated[str | None, typer.Option(help="small or paper, where the study has them.")] = None,
    seeds: Annotated[str | None, typer.Option(help="For example 42,43,44.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of all run folders [runs/NAME].")] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Train every method and seed of a study, then write its report. Finished runs are skipped."""
    from widthwise.report import build_report
    from widthwise.studies import build, load_study, plan, run_study

    chosen = load_study(name, profile, _integers(seeds))
    folder = out or Path("runs") / Path(name).stem
    planned = plan(chosen, folder)

    def start(run: PlannedRun, resume: bool) -> RunResult:
        return _train(build(run.config, data_dir, run.label), run.path, resume)

    outcomes = []
    for outcome in run_study(planned, start):
        outcomes.append(outcome)
        if outcome.state == "skipped":
            say(outcome.planned.path.name, "finished before, skipped")
        elif outcome.error is not None:
            say(outcome.planned.path.name, f"failed: {outcome.error}")
    results = [outcome.result for outcome in outcomes if outcome.result is not None]
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    page = build_report([r.path for r in results], folder / "report.html", chosen.title) if results else None
    data = {
        "runs": [result.result for result in results],
        "failed": {outcome.planned.path.name: str(outcome.error) for outcome in failed},
        "report": page and str(page),
    }
    show(_results(results), data, json)
    if failed:
        say("error", f"{len(failed)} of {len(outcomes)} runs failed; run the same command to try them again.")
    if page:
        say("report", page)
    if failed:
        raise typer.Exit(1)


@app.command()
def report(
    folders: Folders,
    out: Annotated[Path | None, typer.Option(help="The page to write.")] = None,
) -> None:
    """Write one HTML page (and figures as PDF) from stored runs."""
    from widthwise.report import build_report, report_paths

    runs, default = report_paths(folders)
    print(build_report(runs, out or default))


@app.command()
def audit(folders: Folders, json: Json = False) -> None:
    """Say what a run's heterogeneity estimate measured: capacity or data."""
    from widthwise.audit import audit as audit_runs
    from widthwise.report import report_paths

    found = audit_runs(report_paths(folders)[0])
    show(found, found.to_json(), json)


register(app)


def _train(federation: Federation, out: Path, resume: bool) -> RunResult:
    """Run with live progress, after a warning about what would never be trained."""
    from widthwise.cli_progress import ProgressSink
    from widthwise.engine import run_federation

    for kind, text in coverage_notes(federation.space, federation.method, federation.population):
        say(kind, text)
    with explained(out), ProgressSink(stderr()) as progress:
        return run_federation(federation, out, resume=resume, sinks=[progress])


def _results(results: Sequence[RunResult]) -> Table:
    table = Table("run", "seed", "best", "final", "mean width", "MB", "GMACs", "time", title="Results")
    for result in results:
        row: dict[str, Any] = result.result or {}
        table.add_row(
            result.name,
            str(row["seed"]),
            f"{row['best_accuracy']:.1%}",
            f"{row['final_accuracy']:.1%}",
            f"{row['mean_width']:.2f}",
            f"{(row['bytes_up'] + row['bytes_down']) / 1e6:.1f}",
            f"{row['macs'] / 1e9:,.0f}",
            f"{row['seconds']:.0f} s",
        )
    return table


def _integers(text: str | None) -> list[int]:
    if text is None:
        return []
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of whole numbers such as 42,43,44") from None


def main() -> None:
    """Entry point of the command."""
    app()


if __name__ == "__main__":
    main()
