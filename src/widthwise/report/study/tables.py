"""The paper's tables with our numbers beside them, and the tables that the paper does not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from widthwise.report.study.cells import (
    CAPTION,
    MEASURES,
    NOTHING,
    method_text,
    number,
    records,
    seed_records,
    seeds_text,
    signed,
    spread,
    state_text,
    triple,
)
from widthwise.report.study.results import StudyResults, Task
from widthwise.report.study.statistics import estimate
from widthwise.report.study.table import StudyTable
from widthwise.studies.claims import Quantity
from widthwise.studies.costs import Cost, paper_costs, run_costs
from widthwise.studies.expected import PaperTable

_THREE = ("paper", "ours", "difference")
_PRINTED = (("parameters (M)", 2), ("MACs a sample (M)", 1), ("upload (MB)", 2))


def result_tables(results: StudyResults) -> list[StudyTable]:
    """Return the paper's tables of results, each with the study's tasks that stand beside its own."""
    if results.expected is None:
        return []
    return [_result_table(results, number, table) for number, table in results.expected.tables.items()]


def _result_table(results: StudyResults, number_: int, table: PaperTable) -> StudyTable:
    tasks = list(results.paper_tasks(table.tasks))
    pairs = [(task, label) for task in tasks for label in task.labels_of(table.methods)]
    title = f"Table {number_}: {table.title}"
    return _compare(results, f"table-{number_}", title, pairs, table.columns, _notes(tasks))


def headline_table(results: StudyResults) -> StudyTable:
    """Return every method on every task, with the paper's numbers where it has them."""
    pairs = [(task, label) for task in results.tasks for label in task.methods]
    columns: tuple[Quantity, ...] = ("final", "best", "width")
    return _compare(results, "all-results", "All results", pairs, columns, _notes(results.tasks))


def _compare(
    results: StudyResults,
    name: str,
    title: str,
    pairs: Sequence[tuple[Task, str]],
    columns: Sequence[Quantity],
    notes: str,
) -> StudyTable:
    rows, long = [], []
    for task, label in pairs:
        cells: list[str] = []
        for quantity in columns:
            three = triple(results, task, label, quantity)
            cells += three if results.expected else three[1:2]
            long += records(results, name, task, label, quantity)
        method = method_text(results, task.label, label, _name(results, task, label))
        rows.append((task.title, method, seeds_text(results, task.label, label), *cells))
    heads = tuple(MEASURES[quantity].heading for quantity in columns)
    if results.expected:
        head = ("task", "method", "seeds", *(_THREE * len(columns)))
        groups = (("", 3), *((heading, 3) for heading in heads))
        return StudyTable(name, title, f"{CAPTION}{notes}", head, tuple(rows), tuple(long), groups, 2)
    caption = "Mean ± standard deviation over the finished seeds."
    return StudyTable(
        name, title, caption, ("task", "method", "seeds", *heads), tuple(rows), tuple(long), (), 2
    )


def _name(results: StudyResults, task: Task, label: str) -> str:
    """Return a method's name in the paper, and its label as well where several are that method."""
    method = task.method_of(label)
    if results.expected is None or method is None:
        return label
    title = results.expected.methods[method].title or label
    return title if len(task.known[method]) == 1 else f"{title} ({label})"


def _notes(tasks: Sequence[Task]) -> str:
    return "".join(f" {task.title}: {task.note}" for task in tasks if task.note)


def cost_tables(results: StudyResults) -> list[StudyTable]:
    """Return the paper's Table 1 by our count, and the same for the models of this study."""
    return [*_paper_costs(results), _study_costs(results)]


def _paper_costs(results: StudyResults) -> Iterator[StudyTable]:
    if results.expected is None:
        return
    rows, long = [], []
    for model in results.expected.costs:
        for cost in paper_costs(model):
            cells: list[str] = []
            three = zip(_millions(cost), model.rows[cost.width], _PRINTED, strict=True)
            for ours, paper, (heading, digits) in three:
                # The paper prints rounded figures: differences are of what is printed.
                difference = round(ours, digits) - paper
                cells += [number(paper, digits), number(ours, digits), signed(difference, digits)]
                long.append(_cost_record("table-1", model.title, cost, heading, ours, paper, difference))
            rows.append((model.title, f"{cost.width:g}", *cells))
    groups = (("", 2), *((heading, 3) for heading, _ in _PRINTED))
    head = ("model", "width", *(_THREE * 3))
    caption = "Computed from the paper's full-size models. Difference: of the figures as printed."
    title = "Table 1: Cost of a client by width"
    yield StudyTable("table-1", title, caption, head, tuple(rows), tuple(long), groups, 2)


def _study_costs(results: StudyResults) -> StudyTable:
    rows, long = [], []
    for task in results.tasks:
        costs = run_costs(next(iter(task.configs.values())))
        for cost in costs:
            cells = [number(x, digits) for x, (_, digits) in zip(_millions(cost), _PRINTED, strict=True)]
            share = 100 * cost.macs / costs[-1].macs
            rows.append((task.title, f"{cost.width:g}", *cells, number(share, 1)))
            for x, (heading, _) in zip(_millions(cost), _PRINTED, strict=True):
                long.append(_cost_record("study-costs", task.title, cost, heading, x, None, None))
    head = ("task", "width", *(heading for heading, _ in _PRINTED), "MACs (% of largest)")
    title, caption = "Cost of the models of this study", "At the widths of its capacity tiers."
    return StudyTable("study-costs", title, caption, head, tuple(rows), tuple(long), (), 2)


def _millions(cost: Cost) -> tuple[float, float, float]:
    return cost.params / 1e6, cost.macs / 1e6, cost.upload_bytes / 1e6


def _cost_record(
    table: str,
    model: str,
    cost: Cost,
    quantity: str,
    ours: float,
    paper: float | None,
    difference: float | None,
) -> dict[str, Any]:
    return {
        "table": table,
        "model": model,
        "width": cost.width,
        "quantity": quantity,
        "value": ours,
        "paper": paper,
        "difference": difference,
    }


def tier_table(results: StudyResults) -> StudyTable | None:
    """Return the accuracy of every tier's own sub-model for every method; None where nobody measured it."""
    rows, long = [], []
    tiers = sorted({t for cell in results.cells if cell.done and cell.run for t in cell.run.tier_accuracy})
    for task in results.tasks:
        for label in task.methods:
            runs = results.runs(task.label, label)
            texts = []
            for tier in tiers:
                by_seed = {
                    s: 100 * run.tier_accuracy[tier] for s, run in runs.items() if tier in run.tier_accuracy
                }
                found = estimate(list(by_seed.values()))
                absent = state_text(results, task.label, label) if not runs else NOTHING
                texts.append(absent if found is None else spread(found.mean, found.sd, 1))
                about = {"table": "tiers", "task": task.title, "method": label, "width": tier}
                long += seed_records(about, by_seed, results.of(task.label, label))
            rows.append((task.title, method_text(results, task.label, label), *texts))
    if not tiers:
        return None
    return StudyTable(
        "tiers",
        "Sub-model of every tier",
        "Final test accuracy (%) of the sub-model that a client of this capacity would use, mean ± standard "
        "deviation over seeds. Width 1 is the global model.",
        ("task", "method", *(f"width {tier:g}" for tier in tiers)),
        tuple(rows),
        tuple(long),
        (),
        2,
    )
