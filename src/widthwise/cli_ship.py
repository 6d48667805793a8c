"""The commands ``widthwise evaluate`` and ``widthwise export``: what a run trained, at any width."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from widthwise.cli_errors import say
from widthwise.cli_inspect import numbers
from widthwise.cli_options import DataDir, Json
from widthwise.cli_show import show

if TYPE_CHECKING:
    from widthwise.ship import Exported, ExportedFile, WidthResult, WidthResults

Run = Annotated[Path, typer.Argument(help="Run folder, finished or with a checkpoint.")]


class Split(StrEnum):
    """The samples that a model can be evaluated on."""

    TEST = "test"
    TRAIN = "train"


def evaluate(
    run: Run,
    widths: Annotated[
        str | None,
        typer.Option(help="Widths in (0, 1], separated by commas; by default the run's tiers."),
    ] = None,
    split: Annotated[Split, typer.Option(help="Samples to evaluate on.")] = Split.TEST,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Evaluate what a run would ship at any width: accuracy, loss, parameters, MACs, bytes.

    It is evaluated as in the run, batch norms recalibrated for each width: at the tiers, accuracies are those
    of the run's result.json.
    """
    from widthwise.ship import evaluate as evaluate_run

    found = evaluate_run(
        run, None if widths is None else numbers(widths), split=split.value, data_dir=data_dir
    )
    show(_widths_table(found), found.to_json(), json)
    _tell(found, found.widths)


def export(
    run: Run,
    width: Annotated[
        list[float] | None,
        typer.Option(help="A width in (0, 1]; may be given several times. By default the run's tiers."),
    ] = None,
    format: Annotated[
        list[str] | None,
        typer.Option(help="safetensors (default), torch-export or onnx; may be given several times."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write; by default RUN/export.")] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Write what a run trained as files, one for each width and format, with a model card.

    A file holds a dense sub-model, batch norms recalibrated. It is loaded again and must give the sub-model's
    scores on test samples before it is put in place. Nothing that is there is overwritten.
    """
    from widthwise.ship import export as export_run

    written = export_run(run, width or None, format or ("safetensors",), out, data_dir=data_dir)
    show(_files_table(written), written.to_json(), json)
    _tell(written, written.files)
    say("model card", written.card)


def _tell(found: WidthResults | Exported, rows: Iterable[WidthResult | ExportedFile]) -> None:
    """Say which parameters were taken, and where accuracies are not those that the run has noted."""
    unfinished = "" if found.rounds_done == found.rounds else "; the run is not finished"
    say("parameters", f"those after {found.rounds_done} of {found.rounds} rounds{unfinished}")
    for width, accuracy, recorded in sorted({(row.width, row.accuracy, row.recorded) for row in rows}):
        if recorded not in (None, accuracy):
            say(
                "warning",
                f"accuracy at width {width:g} is {accuracy:.4%} here, but the run noted {recorded:.4%}: "
                "the data, the machine or a version is another.",
            )


def _widths_table(found: WidthResults) -> Table:
    title = f"{found.run.name}: {found.samples:,} {found.split} samples"
    table = Table(
        "width", "accuracy", "loss", "parameters", "MACs a sample", "bytes", "never trained", title=title
    )
    for row in found.widths:
        kept = "" if row.kept == row.params else f" ({row.kept:,} not zero)"
        table.add_row(
            f"{row.width:g}",
            f"{row.accuracy:.2%}",
            f"{row.loss:.4f}",
            f"{row.params:,}{kept}",
            f"{row.macs:,}",
            f"{row.bytes:,}",
            f"{row.never_trained:.2%}",
        )
    return table


def _files_table(written: Exported) -> Table:
    table = Table(
        "file",
        "accuracy",
        "loss",
        "parameters",
        "MACs a sample",
        "bytes",
        "off by",
        title=str(written.folder),
    )
    for file in written.files:
        table.add_row(
            file.file,
            f"{file.accuracy:.2%}",
            f"{file.loss:.4f}",
            f"{file.params:,}",
            f"{file.macs:,}",
            f"{file.bytes:,}",
            f"{file.largest_difference:.1e}",
        )
    return table
