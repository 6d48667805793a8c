"""Where the numbers come from: sessions of the study, runs that are not finished, and every run's summary."""

from __future__ import annotations

from typing import Any

from widthwise.report.study.cells import values
from widthwise.report.study.results import StudyResults
from widthwise.report.study.statistics import estimate
from widthwise.report.study.table import StudyTable, csv_text

HEADLINE = ("task", "method", "final_mean", "final_sd", "n", "mean_width", "budget_not_met", "runs")


def sessions_table(results: StudyResults) -> StudyTable:
    """Return the calls that trained something: command, code, machine and time."""
    rows, long = [], []
    for session in results.manifest.sessions:
        environment = session["environment"]
        packages = environment.get("packages") or {}
        versions = [f"python {environment.get('python')}"]
        versions += [f"{name} {number}" for name, number in packages.items() if number]
        machine = (
            f"{environment.get('processor')}, {environment.get('cores')} cores, {environment.get('platform')}"
        )
        record = {
            "started": environment.get("time"),
            "command": environment.get("command"),
            "commit": environment.get("commit"),
            "machine": machine,
            "versions": ", ".join(versions),
            "jobs": session["jobs"],
            "runs_done": session["runs_done"],
            "hours": round(session["seconds"] / 3600, 3),
        }
        long.append(record)
        rows.append(tuple("–" if value is None else str(value) for value in record.values()))
    head = ("started", "command", "commit", "machine", "versions", "side by side", "runs done", "hours")
    caption = (
        "Every call that trained something. Hours: wall clock, of a killed call up to its last finished run."
    )
    return StudyTable("sessions", "Sessions", caption, head, tuple(rows), tuple(long))


def open_runs_table(results: StudyResults) -> StudyTable | None:
    """Return the planned runs that are not finished and why, or None where all are."""
    rows = tuple((cell.path, cell.state) for cell in results.cells if not cell.done)
    if not rows:
        return None
    records = tuple({"path": path, "state": state} for path, state in rows)
    return StudyTable(
        "open-runs", "Runs that are not finished", "They count nowhere.", ("run", "state"), rows, records
    )


def runs_table(results: StudyResults) -> StudyTable:
    """Return one row per planned run, with all scalars of its result."""
    rows, long = [], []
    links: list[str] = []
    for cell in results.cells:
        result: dict[str, Any] = (cell.run.result if cell.run else None) or {}
        scalars = {key: x for key, x in result.items() if not isinstance(x, list | dict)}
        # How well a matched control met its budget, and in which currency.
        scalars |= {f"control_{key}": x for key, x in (result.get("control") or {}).items()}
        long.append(
            {
                "task": cell.task,
                "label": cell.label,
                "seed": cell.seed,
                "path": cell.path,
                "state": cell.state,
                "commit": cell.run.environment.get("commit") if cell.run else None,
                **{key: x for key, x in scalars.items() if key not in ("name", "seed")},
                **{f"accuracy_width_{tier}": x for tier, x in (result.get("width_accuracy") or {}).items()},
            }
        )
        if cell.done:
            final, width = 100 * result["final_accuracy"], result["mean_width"]
            hash_, seconds = str(result["config_hash"]), result["seconds"]
            name = f"{cell.path} (budget not met)" if cell.unmet else cell.path
            links.append(cell.path)
            rows.append((name, f"{final:.2f}", f"{width:.3f}", hash_, f"{seconds:.0f}"))
    head = ("folder", "final accuracy (%)", "average width", "configuration", "seconds")
    caption = "Folders are relative to the study's. The CSV file has everything that a result holds."
    return StudyTable("results", "Finished runs", caption, head, tuple(rows), tuple(long), links=tuple(links))


def headline_csv(results: StudyResults) -> str:
    """Return ``headline.csv``: final accuracy (%) and average width of every method on every task.

    ``budget_not_met``: the seeds in which a matched method could not spend what it was to match.
    """
    rows = []
    for task in results.tasks:
        for label in task.methods:
            runs = results.runs(task.label, label)
            final = estimate(list(values(runs, "final").values()))
            width = estimate(list(values(runs, "width").values()))
            missed = [f"s{cell.seed}" for cell in results.of(task.label, label) if cell.unmet]
            rows.append(
                {
                    "task": task.title,
                    "method": label,
                    "runs": " ".join(cell.path for cell in results.of(task.label, label) if cell.done),
                    "final_mean": round(final.mean, 2) if final else None,
                    "final_sd": round(final.sd, 2) if final and final.sd is not None else None,
                    "n": final.n if final else 0,
                    "mean_width": round(width.mean, 3) if width else None,
                    "budget_not_met": " ".join(missed) or None,
                }
            )
    return csv_text(rows, HEADLINE)
