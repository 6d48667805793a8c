"""Commands that look at a model, a data set, a configuration or the registered parts; none of them trains."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from widthwise.cli_data import data
from widthwise.cli_errors import say
from widthwise.cli_models import MODEL_HELP, model_and_inputs
from widthwise.cli_options import Json
from widthwise.cli_show import show
from widthwise.cli_trace import trace

if TYPE_CHECKING:
    from widthwise.allocation import Population
    from widthwise.audit import CoverageReport
    from widthwise.methods import Method
    from widthwise.slicing import WidthSpace

Set = Annotated[list[str] | None, typer.Option("--set", help="Change a key, e.g. --set capacity.list=[1,1].")]


def register(app: typer.Typer) -> None:
    """Add the commands that look and do not train."""
    for command in (trace, coverage, cost, data, methods, schema):
        app.command()(command)


def coverage_notes(space: WidthSpace, method: Method, population: Population) -> list[tuple[str, str]]:
    """Return (kind of message, what it says) about coordinates that nobody, or nobody for certain, trains."""
    never, uncertain = _coverages(space, method, population)
    notes = []
    if left_out := int((method.policy.reachable(population) == 0).sum()):
        notes.append(
            (
                "note",
                f"{left_out} of {len(population.capacities)} clients never take part: "
                "nothing is learned from their data.",
            )
        )
    if never.never_trained_fraction:
        notes.append(("warning", never.sentence))
    if method.selector.note:
        notes.append(("note", method.selector.note))
    if uncertain.never_trained_fraction > never.never_trained_fraction:
        notes.append(
            (
                "note",
                f"no client is certain to train more than width {uncertain.max_width:g}: how often the other "
                f"{uncertain.never_trained_fraction:.1%} of all coordinates are trained is up to the policy.",
            )
        )
    return notes


def _coverages(
    space: WidthSpace, method: Method, population: Population
) -> tuple[CoverageReport, CoverageReport]:
    """Return what the largest widths that clients can get leave out, and what their certain widths do."""
    from widthwise.audit import coverage as cover

    reachable, guaranteed = method.policy.reachable(population), method.policy.guaranteed(population)
    taking_part = reachable > 0
    reach = partial(method.selector.reach, space)
    return (
        cover(space, reachable[taking_part].tolist(), reach),
        cover(space, guaranteed[taking_part].tolist(), reach),
    )


def coverage(
    config: Annotated[Path, typer.Argument(help="YAML file of a run.")],
    set_: Set = None,
    json: Json = False,
) -> None:
    """Say which parameters nobody can ever train, before a run. Needs no data."""
    from widthwise.allocation import Population
    from widthwise.core.seeds import SeedTree
    from widthwise.slicing import trace as trace_of
    from widthwise.studies import load_config

    settings = load_config(config, set_ or [])
    spec = settings.task.model_spec()
    tracing = settings.task.slices.options(spec.freeze)
    space = trace_of(spec.build(settings.seed), spec.example_inputs(), **tracing)
    capacities = settings.capacity.draw(settings.task.clients, SeedTree(settings.seed))
    population = Population(capacities, settings.capacity.levels())
    never, uncertain = _coverages(space, settings.built_method, population)
    data = {**never.to_json(), "not_guaranteed_fraction": uncertain.never_trained_fraction}
    show(never, data, json)
    for kind, text in coverage_notes(space, settings.built_method, population):
        if kind == "note":  # the warning is the table's own last line
            say(kind, text)


def cost(
    model: Annotated[
        str,
        typer.Argument(help=MODEL_HELP),
    ],
    task: Annotated[str | None, typer.Option(help="Data set whose shapes the model takes.")] = None,
    widths: Annotated[str, typer.Option(help="Widths, separated by commas.")] = "0.25,0.5,0.75,1",
    norm: Annotated[str | None, typer.Option(help="Normalisation layer: group, batch or none.")] = None,
    compression: Annotated[
        str | None, typer.Option(help="How updates are compressed: a kind, or {kind: topk, share: 0.01}.")
    ] = None,
    json: Json = False,
) -> None:
    """Show parameters, multiply-accumulates and upload of a model's slices. Needs no data."""
    from widthwise.slicing import cost as cost_of
    from widthwise.studies.config import read_compression

    chosen = None if compression is None else read_compression(compression)
    net, inputs, freeze = model_and_inputs(model, task, norm)
    num_bytes = None if chosen is None else chosen.num_bytes
    costs = cost_of(net, inputs, numbers(widths), freeze=freeze, num_bytes=num_bytes)
    table = Table("width", "parameters", "MACs a sample", "upload (MB)", title=f"Cost of {model}")
    for row in costs:
        table.add_row(f"{row.width:g}", f"{row.params:,}", f"{row.macs:,}", f"{row.upload_bytes / 1e6:.2f}")
    show(table, [dict(vars(row)) for row in costs], json)


def methods(json: Json = False) -> None:
    """List the registered methods and parts with their sources."""
    from widthwise.allocation import POLICIES
    from widthwise.compression import COMPRESSIONS
    from widthwise.heterogeneity import ESTIMATORS
    from widthwise.methods import METHODS
    from widthwise.slicing import SELECTORS
    from widthwise.tasks import DATASETS, MODELS
    from widthwise.training import OBJECTIVES

    parts = (METHODS, POLICIES, OBJECTIVES, ESTIMATORS, SELECTORS, COMPRESSIONS, MODELS, DATASETS)
    registries: Sequence[Any] = parts
    rows = [
        {
            "kind": registry.kind,
            "name": entry.name,
            "summary": entry.summary,
            "source": entry.source,
            "options": [*getattr(entry.value, "model_fields", {})],
        }
        for registry in registries
        for entry in registry
    ]
    table = Table("kind", "name", "what it does", "options", "source", title="Registered parts")
    kind = ""
    for row in rows:
        if kind and row["kind"] != kind:
            table.add_section()
        kind = row["kind"]
        table.add_row(kind, row["name"], row["summary"], ", ".join(row["options"]), row["source"])
    show(table, rows, json)


class SchemaOf(StrEnum):
    """The kinds of file that have a schema."""

    RUN = "run"
    STUDY = "study"


def schema(of: Annotated[SchemaOf, typer.Argument(help="Which kind of file.")] = SchemaOf.RUN) -> None:
    """Print the JSON Schema of a run's configuration or of a study's file, for editors."""
    from widthwise.studies import schema as run_schema
    from widthwise.studies import study_schema

    print(json_format.dumps(run_schema() if of is SchemaOf.RUN else study_schema(), indent=2))


def numbers(text: str) -> list[float]:
    """Read numbers that are separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers such as 0.25,0.5,1") from None
