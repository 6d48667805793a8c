"""The table of rules and what a rule sees: one call, by the argument names of its schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from widthwise.slicing.axes import Algebra, Axis, fixed_axis
from widthwise.slicing.graph import schema_of
from widthwise.slicing.ir import Ref, Shape, Step

Labels = tuple[Axis, ...]  # one label per axis of a tensor
Result = Labels | list[Labels]  # a list where an operation returns several tensors
Rule = Callable[["Call"], Result]

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for ATen operations, for all their overloads and in-place forms."""

    def add(function: Rule) -> Rule:
        for name in names:
            assert name not in RULES, f"{name} has two rules"
            RULES[name] = function
        return function

    return add


@dataclass(frozen=True)
class SizeOf:
    """An integer argument that follows the size of an axis, or its number of groups of ``per_group``."""

    axis: Axis
    per_group: int | None = None


@dataclass
class Call:
    """One call of an operation.

    ``call["input"]`` is an argument by its name in the schema; a tensor is given by its labels, None where
    it is absent.

    Attributes:
        algebra: Unification of axes.
        shape: Shape of the value (a list of shapes where there are several).
        edits: Arguments whose numbers follow the size of an axis.
        macs: Products of axes, each a number of multiply-accumulates.
        op: The operation that the sub-model runs.
        args: Its positional arguments.
    """

    step: Step
    algebra: Algebra
    labels: dict[str, Result]
    edits: dict[str, SizeOf | list[SizeOf]] = field(default_factory=dict)
    macs: list[Axis] = field(default_factory=list)
    op: str = ""
    args: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        self.schema = schema_of(self.step.op)
        self.op, self.args = self.step.op, self.step.args
        self._arguments = {a.name: a.default_value for a in self.schema.arguments}
        positional = [a.name for a in self.schema.arguments]
        self._arguments.update(zip(positional, self.step.args, strict=False))
        self._arguments.update(self.step.kwargs)

    def __getitem__(self, name: str) -> Any:
        return self._seen(self._arguments[name])

    def __contains__(self, name: str) -> bool:
        return name in self._arguments

    def get(self, name: str) -> Any:
        """Return an argument, or None where this overload has none of that name."""
        return self._seen(self._arguments.get(name))

    def tensors(self) -> Iterator[Labels]:
        """Yield the labels of all tensor arguments."""
        for argument in self._arguments.values():
            for item in argument if isinstance(argument, (list, tuple)) else [argument]:
                if isinstance(item, Ref) and isinstance(found := self.labels.get(item.name), tuple):
                    yield found

    @property
    def shape(self) -> Shape:
        """The shape of the one tensor that is returned."""
        assert isinstance(self.step.shape, tuple)
        return self.step.shape

    def unify(self, one: Axis, other: Axis) -> None:
        """Make two axes the same axis."""
        self.algebra.unify(one, other)

    def resize(self, name: str, axes: Sequence[Axis]) -> None:
        """Let each integer of a list argument follow the size of an axis."""
        self.edits[name] = [SizeOf(axis) for axis in axes]

    def count(self, name: str, axis: Axis, *, per_group: int | None = None) -> None:
        """Let an integer argument follow the size of an axis, or its number of norm groups."""
        self.edits[name] = SizeOf(axis, per_group)

    def rewrite(self, op: str, *args: Any) -> None:
        """Let the sub-model run another operation that does the same in the full model."""
        self.op, self.args = op, args

    def fixed(self, dims: Sequence[int]) -> Labels:
        """Return new axes, never cut, of the value's sizes at the given dimensions."""
        return tuple(fixed_axis(self.shape[dim]) for dim in dims)

    def dim(self, name: str, rank: int) -> int:
        """Return a dimension argument, counted from the front."""
        return int(self[name]) % rank

    def _seen(self, argument: Any) -> Any:
        if isinstance(argument, Ref):
            return self.labels.get(argument.name, argument)
        if isinstance(argument, (list, tuple)):
            return [self._seen(item) for item in argument]
        return argument
