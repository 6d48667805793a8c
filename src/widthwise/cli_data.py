"""``widthwise data``: which data sets there are, where they come from, and who would hold which classes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.table import Table

from widthwise.cli_errors import say
from widthwise.cli_options import Json
from widthwise.cli_show import show
from widthwise.core.errors import InputError

if TYPE_CHECKING:
    from widthwise.tasks.describe import Description


def data(
    name: Annotated[str | None, typer.Argument(help="A data set; without it, all are listed.")] = None,
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 20,
    partition: Annotated[str, typer.Option(help="As in a configuration.")] = "{kind: dirichlet, alpha: 0.3}",
    limit: Annotated[int | None, typer.Option(help="Training samples to keep.")] = None,
    seed: Annotated[int, typer.Option(help="Root of all random draws.")] = 42,
    picture: Annotated[
        Path | None, typer.Option(help="SVG, PNG or PDF file; by default runs/data-NAME.svg.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of local Parquet files.")] = None,
    json: Json = False,
) -> None:
    """List the data sets, or describe one and draw its class counts per client."""
    from widthwise.heterogeneity import label_divergence
    from widthwise.tasks import DATASETS
    from widthwise.tasks.describe import describe, plot_class_counts

    if name is None:
        found = [describe(known, data_dir) for known in DATASETS.names()]
        show(_list(found), [dataclasses.asdict(each) for each in found], json)
        return
    described = describe(name, data_dir)
    if not json:  # what is known comes first: the data itself may be missing
        show(_facts(described), None, as_json=False)
    counts = _class_counts(name, clients, partition, limit, seed, data_dir)
    file = picture or Path("runs") / f"data-{name}.svg"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        plot_class_counts(counts, described.class_names, file)
    except (OSError, ValueError) as error:  # matplotlib refuses an unknown suffix with a ValueError
        raise InputError(
            f"picture is {str(file)!r}, but it cannot be written ({error}). Choose another."
        ) from None
    divergence = label_divergence(counts)
    held = {
        "samples": counts.sum(axis=1).tolist(),
        "label_divergence": divergence.tolist(),
        "class_counts": counts.tolist(),
    }
    facts = {**dataclasses.asdict(described), "clients": held, "picture": str(file)}
    table = Table("client", "samples", "classes", "label divergence", title=f"{clients} clients, {partition}")
    for client, row in enumerate(counts):
        table.add_row(str(client), f"{row.sum():,}", str((row > 0).sum()), f"{divergence[client]:.2f}")
    show(table, facts, json)
    say("picture", file)


def _class_counts(
    name: str, clients: int, partition: str, limit: int | None, seed: int, data_dir: Path | None
) -> Any:
    from widthwise.studies import RunConfig
    from widthwise.tasks import DATASETS, MODELS, build_task

    try:
        options = yaml.safe_load(partition)
    except yaml.YAMLError:
        raise typer.BadParameter(f"{partition!r} is no YAML such as {{kind: iid}}") from None
    kind = DATASETS[name].value.signature.kind
    # A task has a model; which one makes no difference here, since it is not built.
    model = next(entry.name for entry in MODELS if kind in entry.value.kinds)
    task = {"dataset": name, "model": model, "clients": clients, "partition": options, "limit": limit}
    config = RunConfig(task=task, method={"name": "fedavg"}, training={"cohort": 1}, seed=seed)
    return build_task(config.task, config.capacity, seed, data_dir).class_counts()


def _list(found: list[Description]) -> Table:
    table = Table("name", "kind", "classes", "here", "what it is", title="Data sets")
    for each in found:
        where = {"local": each.where, "hub": f"on the hub: {each.where}"}.get(each.place, each.place)
        table.add_row(each.name, each.kind, str(len(each.class_names)), where, each.summary)
    return table


def _facts(described: Description) -> Table:
    table = Table(show_header=False, title=described.name)
    rows = ", ".join(f"{file}: {count:,}" for file, count in described.rows.items())
    for key, value in (
        ("what", described.summary),
        ("from", described.source),
        ("terms", described.terms),
        ("here", f"{described.place} {described.where}".strip()),
        ("rows", rows or "not known before it is loaded"),
        ("shape", " x ".join(map(str, described.shape))),
        ("classes", str(len(described.class_names))),
        ("natural id", described.natural_id or "none"),
    ):
        table.add_row(key, value)
    return table
