"""What can never be trained: coordinates outside every client's reach, known before a run starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from widthwise.core.errors import InputError

if TYPE_CHECKING:  # a table of clients is audited without torch
    from torch import Tensor

    from widthwise.core.protocols import Space


@dataclass(frozen=True)
class ParameterCoverage:
    """How much of one parameter nobody trains.

    Attributes:
        name: Name of the parameter.
        shape: Global shape.
        never_trained: Number of coordinates that nobody trains.
        fraction: The same as a share of the parameter.
    """

    name: str
    shape: tuple[int, ...]
    never_trained: int
    fraction: float


@dataclass(frozen=True)
class CoverageReport:
    """What nobody can ever train.

    Attributes:
        max_width: The largest width that any client reaches.
        never_trained_fraction: Share of all coordinates.
        output_path_fraction: Share of the coordinates of the output path.
        parameters: One row per parameter, in the model's order.
        reason: Why nobody trains them, as a clause.
    """

    max_width: float
    never_trained_fraction: float
    output_path_fraction: float
    parameters: tuple[ParameterCoverage, ...]
    reason: str

    @property
    def sentence(self) -> str:
        """What the numbers mean."""
        if self.never_trained_fraction == 0:
            return "Every coordinate of the model can be trained by at least one client."
        return (
            f"{self.never_trained_fraction:.1%} of the model's coordinates ({self.output_path_fraction:.1%} "
            f"of the output path) can never be trained, because {self.reason}: they keep their initial "
            "values and still take part in every forward pass. "
            "Give at least one client the full width, or train a smaller model."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-able data."""
        return {
            "never_trained_fraction": self.never_trained_fraction,
            "output_path_fraction": self.output_path_fraction,
            "parameters": [{**vars(row), "shape": list(row.shape)} for row in self.parameters],
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table of parameters with untrained coordinates, and the sentence."""
        if self.never_trained_fraction:
            table = Table("parameter", "shape", "never trained", "share", title="Coverage")
            for row in self.parameters:
                if row.never_trained:
                    shape = " x ".join(map(str, row.shape))
                    table.add_row(row.name, shape, f"{row.never_trained:,}", f"{row.fraction:.1%}")
            yield table
        yield self.sentence


def coverage(
    space: Space,
    widths: Sequence[float],
    reach: Callable[[float], Mapping[str, Tensor]] | None = None,
) -> CoverageReport:
    """Return which global coordinates no client can ever train.

    A coordinate outside the widest nested slice keeps its initial value for ever while it takes part in every
    forward pass of the global model. Nested slices contain each other, so the widest one is their union;
    for other selectors, ``reach`` says what a client of the largest width may get over the rounds.
    The *output path* is made of the parameters whose output axis is the model's output (weight and bias of
    the layers that write the logits): an untrained coordinate there adds noise straight to the logits.
    Source: Moayedikia and Troncoso Lora (2026), Proposition 3 (frozen coordinates).

    Args:
        space: The model's width space.
        widths: The largest width that each client can ever get, in (0, 1].
        reach: Width -> which coordinates clients of at most this width can ever train (bool, global shapes);
            by default those of the nested slice.

    Returns:
        Shares over all parameters, over the output path and for each parameter.

    Raises:
        InputError: if there are no widths, or one is outside (0, 1].
    """
    if not len(widths):
        raise InputError("the list of widths is empty, but coverage needs one per client. Give the widths.")
    for width in widths:
        if not 0 < width <= 1:
            raise InputError(f"a width is {width}, but it must lie in (0, 1]. Mend the capacities.")
    largest = float(max(widths))
    rows = []
    reached = reach(largest) if reach else space.mask(space.nested(largest))
    for name, kept in reached.items():
        lost = kept.numel() - int(kept.sum())
        rows.append(ParameterCoverage(name, tuple(kept.shape), lost, lost / kept.numel()))
    output_path = [row for row in rows if row.name in space.output_parameters]
    reason = f"no client reaches a width above {largest:g}"
    if reach:
        reason += ", and no slice of that width ever holds them"
    return CoverageReport(largest, _share(rows), _share(output_path), tuple(rows), reason)


def _share(rows: Sequence[ParameterCoverage]) -> float:
    total = sum(prod(row.shape) for row in rows)
    return sum(row.never_trained for row in rows) / total if total else 0.0
