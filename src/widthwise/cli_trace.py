"""The command ``widthwise trace``: which channels of a model are cut together, and what widths keep."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table

from widthwise.cli_errors import say
from widthwise.cli_models import MODEL_HELP, model_and_inputs
from widthwise.cli_options import Json
from widthwise.cli_show import show


class Heads(StrEnum):
    """How attention is cut."""

    WHOLE = "whole"
    INSIDE = "inside"


def trace(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    task: Annotated[str | None, typer.Option(help="Data set whose shapes the model takes.")] = None,
    norm: Annotated[str | None, typer.Option(help="Normalisation layer: group, batch or none.")] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="Sizes of an input without the batch: 3,32,32. Once an input.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of the inputs with --shape: float32, int64, ...")] = "float32",
    freeze: Annotated[
        list[str] | None, typer.Option(help="A module or group whose channels stay whole.")
    ] = None,
    align: Annotated[
        list[str] | None, typer.Option(help="Round kept channels up to a multiple: 8, or GROUP=8.")
    ] = None,
    floor: Annotated[
        list[str] | None, typer.Option(help="Keep at least so many channels: 16, or GROUP=16.")
    ] = None,
    heads: Annotated[Heads, typer.Option(help="Cut attention by whole heads or inside each.")] = Heads.WHOLE,
    widths: Annotated[str, typer.Option(help="Widths, separated by commas.")] = "0.25,0.5,0.75,1",
    plot: Annotated[Path | None, typer.Option(help="Draw the groups into this file (svg, png, pdf).")] = None,
    json: Json = False,
) -> None:
    """Show which channels of a model are cut together, why, and what each width keeps. Needs no data."""
    from widthwise.cli_inspect import numbers
    from widthwise.report import check_plot, draw_channel_graph
    from widthwise.slicing import group_edges, group_rows, group_table
    from widthwise.slicing import trace as trace_of

    if plot is not None:
        check_plot(plot)
    net, inputs, own = model_and_inputs(model, task, norm, shape, dtype)
    space = trace_of(
        net,
        inputs,
        freeze=(*own, *(freeze or [])),
        align=_counts("--align", align),
        floor=_counts("--floor", floor),
        heads=heads.value,
    )
    specs = [space.nested(width) for width in numbers(widths)]
    kept = Table("width", "parameters", "MACs a sample", "channels kept", title=f"Widths of {model}")
    rows: list[dict[str, Any]] = []
    for spec in specs:
        counts = space.counts(spec)
        params, macs = space.num_params(spec), space.macs(spec)
        rows.append({"width": spec.width, "params": params, "macs": macs, "channels": counts})
        brief = ", ".join(map(str, list(counts.values())[:12])) + (" ..." if len(counts) > 12 else "")
        kept.add_row(f"{spec.width:g}", f"{params:,}", f"{macs:,}", brief)
    data = {
        "groups": [row.to_json() for row in group_rows(space)],
        "kept_whole": list(space.kept_whole),
        "widths": rows,
    }
    show(Group(group_table(space), kept), data, json)
    if plot is not None:
        sizes = {group.name: group.size for group in space.groups}
        say("plot", draw_channel_graph(sizes, group_edges(space), plot, model))


def _counts(option: str, given: list[str] | None) -> dict[str, int] | int:
    """Read ``8`` or ``GROUP=8`` (any number of times)."""
    try:
        pairs = [text.rpartition("=") for text in given or []]
        named = {name: int(number) for name, equals, number in pairs if equals}
        of_all = [int(number) for _, equals, number in pairs if not equals]
    except ValueError:
        raise typer.BadParameter(f"{option} {' '.join(given or [])} is neither 8 nor GROUP=8.") from None
    if len(of_all) > 1 or (of_all and named):
        raise typer.BadParameter(f"{option} is given for all groups and again. Name it once, or by group.")
    return named or (of_all[0] if of_all else 1)
