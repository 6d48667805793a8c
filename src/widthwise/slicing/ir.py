"""The captured program as plain data: no tensors, no functions, no torch graph. It pickles and it compares.

Arguments are Python constants, lists of arguments, or one of the markers below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from widthwise.slicing.layout import Layout, size

Shape = tuple[int, ...]

#: The size that stands for the batch in shapes: a prime that no layer has, so that every size which contains
#: the batch is a multiple of it and products stay unambiguous.
BATCH = 1_000_003


@dataclass(frozen=True)
class Ref:
    """The value of an input, of a model tensor or of an earlier step."""

    name: str


@dataclass(frozen=True)
class BatchSize:
    """A multiple of the batch size."""

    times: int


@dataclass(frozen=True)
class InputDevice:
    """The device of the first input."""


@dataclass(frozen=True)
class ModelDtype:
    """The dtype of the first floating-point parameter, so that states which a forward makes follow a cast."""


@dataclass(frozen=True)
class Size:
    """The size of an axis; ``at`` leaves the batch in it as a factor ``BATCH``."""

    layout: Layout

    @property
    def has_batch(self) -> bool:
        """Whether it is a multiple of the batch size."""
        return any(isinstance(factor, int) and factor % BATCH == 0 for factor in self.layout)

    def at(self, counts: Mapping[str, int]) -> int:
        """Return the size where each group has so many channels."""
        return size(self.layout, counts)


@dataclass(frozen=True)
class GroupCount:
    """The number of groups of a group norm.

    The number of channels per group stays ``per_group`` where it divides the number of kept channels k.
    Elsewhere the number of groups is the largest one, at most round(k / per_group) and at least 1, that
    divides k: groups are then larger or smaller than in the full model (12 channels at 8 per group: two
    groups of 6), and all of one size.
    """

    layout: Layout
    per_group: int

    def at(self, counts: Mapping[str, int]) -> int:
        """Return the number of groups where each channel group has so many channels."""
        kept = size(self.layout, counts)
        start = max(1, round(kept / self.per_group))
        return next(groups for groups in range(start, 0, -1) if kept % groups == 0)


@dataclass(frozen=True)
class Step:
    """One operation.

    Attributes:
        name: Name of its value.
        op: Its name below ``torch.ops`` or, with the prefix "operator.", in the standard library.
        args: Positional arguments.
        kwargs: Keyword arguments.
        shape: Shape of its value: one for a tensor, a list for several tensors, None for a number.
        detached: Whether it ran where the forward switches gradients off.
        mixes: Whether its value depends on how many channels of an axis are kept: a statistic over them.
        sums: (argument, dimension, layout) of an operand over whose channels it sums.
        module: Path of the module in which it ran.
        line: Source line that called it, as ``file:line``.
        leaves: Paths of the modules whose output it is.
    """

    name: str
    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    shape: Shape | list[Shape] | None = None
    detached: bool = False
    mixes: bool = False
    sums: tuple[tuple[int, int, Layout], ...] = ()
    module: str = field(default="", compare=False)
    line: str = field(default="", compare=False)
    leaves: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The operation and where it comes from, for messages."""
        at, inside = self.line and f"at {self.line}", self.module and f"in module {self.module!r}"
        return " ".join(filter(None, (self.op, at, inside)))


@dataclass(frozen=True)
class Tensor:
    """A parameter or buffer of the model, without its values."""

    name: str
    shape: Shape
    dtype: torch.dtype
    parameter: bool
    requires_grad: bool
    persistent: bool


@dataclass(frozen=True)
class Made:
    """A container of the model's own class in what the forward returns, such as a dataclass."""

    kind: type
    fields: dict[str, Any]


@dataclass(frozen=True)
class Program:
    """A model's forward pass in one mode.

    Attributes:
        inputs: References to the forward's arguments, in the order of the example inputs.
        steps: Operations, in the order of execution.
        output: References, in the containers that the forward returns.
        constants: Tensors that the forward itself makes, by name.
    """

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    output: Any
    constants: dict[str, torch.Tensor]

    def __eq__(self, other: object) -> bool:
        """Whether two programs do the same; where they were written does not matter."""
        return (
            isinstance(other, Program)
            and (self.inputs, self.steps, self.output) == (other.inputs, other.steps, other.output)
            and self.constants.keys() == other.constants.keys()
            and all(_same(value, other.constants[name]) for name, value in self.constants.items())
        )

    __hash__ = None  # type: ignore[assignment]


def input_name(argument: str) -> str:
    """Return the name by which a program refers to an argument; no parameter has one like it."""
    return f"<{argument}>"


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def transform(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to every leaf of nested lists, tuples and dictionaries, and to containers."""
    if isinstance(value, Made):
        return function(Made(value.kind, transform(value.fields, function)))
    if isinstance(value, dict):
        return {key: transform(item, function) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(transform(item, function) for item in value)
    return function(value)


def references(value: Any) -> list[str]:
    """Return the names that an argument refers to, in order."""
    found: list[str] = []
    transform(value, lambda leaf: found.append(leaf.name) if isinstance(leaf, Ref) else None)
    return found
