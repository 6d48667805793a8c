"""The command ``widthwise probe``: the largest width that this machine can train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from widthwise.cli_inspect import numbers
from widthwise.cli_models import MODEL_HELP, model_and_inputs
from widthwise.cli_options import Json
from widthwise.cli_show import show, stderr
from widthwise.core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from widthwise.engine.probe import Bounds, ProbeResult


def probe(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    memory_mb: Annotated[
        float, typer.Option(help="Memory of the whole process that trains, its libraries included, in MiB.")
    ],
    seconds_per_step: Annotated[
        float, typer.Option(help="Time of one training step, the median of several.")
    ],
    batch_size: Annotated[int, typer.Option(min=1, help="Samples of a step.")] = 32,
    task: Annotated[str | None, typer.Option(help="Data set whose shapes the model takes.")] = None,
    norm: Annotated[str | None, typer.Option(help="Normalisation layer: group, batch or none.")] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="Sizes of the input without the batch: 3,32,32.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of the input with --shape: float32, int64, ...")] = "float32",
    widths: Annotated[
        str | None,
        typer.Option(help="Widths to try, separated by commas. Without: search those that change the slice."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps that are timed, after two that warm up.")] = 5,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch; clients of a run train on one.")] = 1,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto.")] = "cpu",
    patience: Annotated[
        float, typer.Option(help="Seconds for each width, beside those that its steps may take.")
    ] = 60.0,
    json: Json = False,
) -> None:
    """Find the largest width whose training step fits this machine. Needs no data.

    Each width is trained in a fresh process, as a client of a run does.

    Its memory is the peak of the whole process; growth is what training adds.

    One that exceeds --memory-mb is killed, as is one that hangs: it does not fit.

    Exit code 1: not even the smallest width fits.
    """
    from widthwise.core.errors import RunError
    from widthwise.engine.probe import Bounds
    from widthwise.engine.probe import probe as probe_widths
    from widthwise.slicing import trace

    bounds = Bounds(memory_mb, seconds_per_step)
    net, inputs, freeze = model_and_inputs(model, task, norm, shape, dtype)
    space = trace(net, inputs, freeze)
    batch = _batch(model, net, inputs, batch_size, bounds)
    with stderr().status("probe") as status:
        found = probe_widths(
            space,
            net,
            batch,
            bounds,
            widths=numbers(widths) if widths is not None else (),
            steps=steps,
            threads=threads,
            device=device,
            patience=patience,
            watch=lambda width: status.update(f"training at width {width:.3g}"),
        )
    data = {"model": model, "batch_size": batch_size, "threads": threads, "device": device, **found.to_json()}
    show(
        _table(found, f"{model}: batch {batch_size}, {device}, {threads} thread{'s' * (threads > 1)}"),
        data,
        json,
    )
    if found.width is None:
        raise RunError(f"{found.sentence} Raise the bounds, or lower --batch-size.")


def _batch(model: str, net: nn.Module, inputs: Any, size: int, bounds: Bounds) -> tuple[Tensor, Tensor]:
    """Return a batch for training: noise, or the tokens of the examples by turns; classes by turns.

    Raises:
        ConfigError: if the model does not take one tensor, or does not return class scores, or if the batch
            alone exceeds the bound of memory: then it is not made, here or in a process that is watched.
    """
    import torch

    from widthwise.core.outputs import logits_of
    from widthwise.engine.probe.records import MIB

    examples = inputs[0] if isinstance(inputs, tuple) and len(inputs) == 1 else inputs
    if not isinstance(examples, torch.Tensor):
        raise ConfigError(
            f"model is {model!r}, but it takes several inputs or named ones, and a training step gives it "
            "one tensor. Wrap it in a module that takes one."
        )
    if (alone := size * examples[0].nbytes / MIB) > bounds.memory_mib:
        raise ConfigError(
            f"the batch size is {size}, but the inputs of a step alone take {alone:.0f} MiB then and the "
            f"bound is {bounds.memory_mib:g} MiB. Lower --batch-size."
        )
    places = torch.arange(size)
    with torch.no_grad():
        scores = logits_of(net(examples))
    if scores.dim() != 2:
        raise ConfigError(
            f"model is {model!r}, but its output has the shape {list(scores.shape)}, and training needs "
            "scores [batch, classes]. Wrap it in a module that returns them."
        )
    batch = examples[places % len(examples)]
    noise = torch.rand_like(batch) if batch.is_floating_point() else batch
    return noise, places % scores.shape[1]


def _table(found: ProbeResult, what: str) -> Table:
    from widthwise.engine.probe.records import written

    table = Table(
        *("width", "parameters", "MACs a sample", "peak (MiB)", "growth", "seconds a step", "fits"),
        title=f"Training steps of {what}",
        caption=f"{found.sentence} Peak: the whole process; growth: what training adds to it.",
    )
    for row in found.rows:
        more = "" if row.seconds is not None else "> "
        table.add_row(
            written(row.width),
            f"{row.params:,}",
            f"{row.macs:,}",
            f"{more}{row.peak_mib:.0f}",
            f"{more}{row.growth_mib:.0f}",
            "-" if row.seconds is None else f"{row.seconds:.3g}",
            "yes" if row.fits else f"no: {', '.join(row.exceeds)}",
        )
    return table
