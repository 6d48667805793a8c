"""What a run's sub-models are worth and what they cost, width by width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from torch import nn

from widthwise.core.errors import ConfigError, SliceError, unknown_name
from widthwise.core.params import load_
from widthwise.core.records import SliceSpec
from widthwise.engine import RunResult
from widthwise.ship.trained import Trained, open_run
from widthwise.slicing import channels_at, num_values

Split = Literal["test", "train"]


@dataclass(frozen=True)
class WidthResult:
    """One sub-model of a run.

    Attributes:
        width: Its width.
        accuracy: In [0, 1].
        loss: Mean over the samples.
        params: Parameters of the module.
        kept: Those of them that its slice keeps: fewer where the slice is a mask and the others are zero.
        macs: Multiply-accumulates of one sample's forward pass.
        bytes: Of its parameters and buffers.
        never_trained: Share of the kept parameters that no client has trained so far; they are as they were
            initialised.
        recorded: The accuracy that the run itself noted for this width at its end; None where it did not.
    """

    width: float
    accuracy: float
    loss: float
    params: int
    kept: int
    macs: int
    bytes: int
    never_trained: float
    recorded: float | None


@dataclass(frozen=True)
class WidthResults:
    """Sub-models of one run.

    Attributes:
        run: The run folder.
        rounds_done: Rounds after which the parameters were saved.
        rounds: Rounds of the whole run.
        split: Samples that the models were evaluated on: ``test``, or ``train`` (of all clients).
        samples: How many they are.
        widths: One row for each width.
    """

    run: Path
    rounds_done: int
    rounds: int
    split: Split
    samples: int
    widths: tuple[WidthResult, ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data."""
        return {**asdict(self), "run": str(self.run)}


class Slice(NamedTuple):
    """A sub-model: its slice, itself with statistics of its own in evaluation mode, and what was measured."""

    spec: SliceSpec
    module: nn.Module
    result: WidthResult


def evaluate(
    run: RunResult | Path | str,
    widths: float | Iterable[float] | None = None,
    *,
    split: Split = "test",
    data_dir: Path | str | None = None,
    model: nn.Module | None = None,
) -> WidthResults:
    """Evaluate sub-models of a run as the run itself does: what its method ships, batch norms recalibrated.

    At the run's tiers, on its test set, accuracies are those of ``width_accuracy`` in its ``result.json``.

    Args:
        run: A run or its folder, finished or with a checkpoint.
        widths: Any widths in (0, 1]; by default the run's tiers.
        split: ``test``, or ``train``: the training samples of all clients, not augmented.
        data_dir: Folder of local data files; it wins over the one in the run's configuration.
        model: The module that the run was given, where it was given a Python object.

    Returns:
        A row for each width, ascending.

    Raises:
        InputError: if a width is not in (0, 1], or run, data or model cannot be had.

    Example::

        for row in ww.evaluate("runs/x", [0.25, 0.6]).widths:
            print(row.width, row.accuracy, row.macs)
    """
    chosen = chosen_widths(widths)
    if split not in get_args(Split):
        raise ConfigError(unknown_name("split", split, get_args(Split)))
    trained = open_run(run, data_dir, model)
    samples = getattr(trained.fed.task, split)
    return WidthResults(
        run=trained.run.path,
        rounds_done=trained.state.round_index,
        rounds=trained.rounds,
        split=split,
        samples=len(samples),
        widths=tuple(found.result for found in slices(trained, chosen, split)),
    )


def chosen_widths(widths: float | Iterable[float] | None) -> tuple[float, ...]:
    """Return distinct widths, ascending; none where none are given.

    Raises:
        SliceError: if one is not in (0, 1], or the list is empty.
    """
    if widths is None:
        return ()
    listed = widths if isinstance(widths, Iterable) and not isinstance(widths, str) else [widths]
    try:
        given = [float(width) for width in listed]
    except (TypeError, ValueError) as error:
        raise SliceError(
            f"the list of widths is {listed!r}, but a width is a number in (0, 1]. Choose one such as 0.5."
        ) from error
    if not given:
        raise SliceError("the list of widths is empty, but there is nothing to do then. Name a width.")
    for width in given:
        channels_at(width, 1)
    return tuple(sorted(set(given)))


def slices(trained: Trained, widths: tuple[float, ...], split: Split = "test") -> Iterator[Slice]:
    """Yield the sub-model of each width, or of each tier where there are no widths.

    A module is its own: later ones leave it as it is.
    """
    fed, state = trained.fed, trained.state
    samples = None if split == "test" else fed.task.train
    for width in widths or fed.task.tiers:
        spec = trained.shipped(width)
        module = trained.evaluator.calibrated(state, spec)
        found = trained.evaluator.measure(module, state, samples)
        own = fed.space.module(spec).requires_grad_(False).eval()
        load_(own, dict(module.named_parameters()), dict(module.named_buffers()))
        kept = num_values(fed.space, spec)
        covered = spec.masked(fed.space.take(state.ever_covered, spec))
        stored = {value.data_ptr(): value.nbytes for value in own.state_dict().values()}
        result = WidthResult(
            width=width,
            accuracy=found.accuracy,
            loss=found.loss,
            params=fed.space.num_params(spec),
            kept=kept,
            macs=fed.space.macs(spec),
            bytes=sum(stored.values()),
            never_trained=1 - sum(int(part.count_nonzero()) for part in covered.values()) / kept,
            recorded=trained.run.tier_accuracy.get(width) if split == "test" else None,
        )
        yield Slice(spec, own, result)
