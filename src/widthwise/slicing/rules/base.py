"""The table of rules and what a rule sees: one call, by the argument names of its schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from widthwise.core.errors import TraceError
from widthwise.slicing.axes import Algebra, Axis, fixed_axis, free_atoms, pin, resolve, size_of
from widthwise.slicing.ir import BATCH, Ref, Shape, Step

Labels = tuple[Axis, ...]  # one label per axis of a tensor
Result = Labels | list[Labels]  # a list where an operation returns several tensors
Rule = Callable[["Call"], Result]

RULES: dict[str, Rule] = {}
TAGS: dict[torch.Tag, Rule] = {}  # rules of all operations that torch tags so


def schema_of(op: str) -> Any:
    """Return the schema of an operation by its name ("aten.relu.default")."""
    namespace, name, overload = op.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)._schema


def find(name: str) -> Rule | None:
    """Return the rule of an operation by its schema's name ("aten::relu_"), if there is one."""
    kind = name.removeprefix("aten::").replace("::", ".")
    found = RULES.get(kind) or RULES.get(kind.removesuffix("_"))
    return found or next((TAGS[tag] for tag in tags_of(name) if tag in TAGS), None)


@cache
def tags_of(name: str) -> frozenset[torch.Tag]:
    """Return the tags of an operation; in-place forms may lack those of the others."""
    namespace, kind = name.split("::")
    space = getattr(torch.ops, namespace)
    packets = [getattr(space, one) for one in {kind, kind.removesuffix("_")} if hasattr(space, one)]
    return frozenset(
        tag for one in packets for overload in one.overloads() for tag in getattr(one, overload).tags
    )


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule: which axes of an operation's inputs and value are the same channels.

    Args:
        names: Operations, each for all its overloads and in-place forms: ``relu`` (or ``aten.relu``) of
            ATen, ``mylib.scan`` of another library.

    Raises:
        TraceError: if an operation has a rule already, or none is called so.

    Example:
        >>> @rule("mylib.scan")  # y[b, t, c] = sum over s <= t of x[b, s, c]
        ... def scan(call: Call) -> Labels:
        ...     x = call["x"]
        ...     call.keep(x[1])  # the order of the positions matters
        ...     return x
        >>> _ = RULES.pop("mylib.scan")
    """

    def add(function: Rule) -> Rule:
        for given in names:
            name = given.removeprefix("aten.")
            if name in RULES:
                raise TraceError(f"{name!r} has a rule already, but an operation has one. Use another name.")
            of_aten = name != given or "." not in name
            if name.count(".") > 1 or (of_aten and not hasattr(torch.ops.aten, name)):
                raise TraceError(
                    f"a rule is registered for {given!r}, but no operation is called so. Name one without "
                    "its overload: relu or aten.relu of ATen, mylib.scan of another library."
                )
            RULES[name] = function
        return function

    return add


def rule_of(call: Call) -> Rule:
    """Return the rule of a call's operation.

    An operation without a rule may still work on axes of no parameter. What is written into a given tensor
    (``out=``, as power iterations do) is a state of the whole model: nothing of it is ever cut.

    Raises:
        TraceError: if there is no rule and it works on axes of parameters that may be cut.
    """
    if any(argument.is_out for argument in call.schema.arguments):
        return whole
    found = find(call.schema.name)
    if found is not None:
        return found
    kind = call.schema.name.removeprefix("aten::").replace("::", ".")
    free = [atom for labels in call.tensors() for axis in labels for atom in free_atoms(axis)]
    if not any(atom.owned for atom in free):
        return whole
    shapes = [
        str(tuple("batch" if size_of(axis) == BATCH else size_of(axis) for axis in labels)).replace("'", "")
        for labels in call.tensors()
    ]
    raise TraceError(
        f"{call.step.place} takes {' and '.join(shapes)}, but no rule says where its channels go. Write it "
        "with operations that have one, name the module that makes these channels in freeze, or register a "
        f"rule for {kind!r} (widthwise.rule)."
    )


def whole(call: Call) -> Result:
    """Nothing that goes in is ever cut (positions, masks), so nothing that comes out is."""
    for labels in call.tensors():
        call.keep(*labels)
    if call.step.shape is None:
        return []
    found = [tuple(fixed_axis(n) for n in shape) for shape in call.shapes]
    return found if isinstance(call.step.shape, list) else found[0]


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
        shape: Shape of the value (of the first, where there are several; ``shapes`` has all).
        edits: Arguments whose numbers follow the size of an axis.
        used: Which of the tensors that it returns are used.
        macs: Products of axes, each a number of multiply-accumulates.
        mixed: Axes over which the value has a statistic, so that it depends on how many channels are kept.
        summed: (argument, dimension from the end, axis) of an operand over whose channels the value sums.
        op: The operation that the sub-model runs.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """

    step: Step
    algebra: Algebra
    labels: dict[str, Result]
    used: frozenset[int] = frozenset()
    edits: dict[str, SizeOf | list[SizeOf]] = field(default_factory=dict)
    macs: list[Axis] = field(default_factory=list)
    mixed: list[Axis] = field(default_factory=list)
    summed: list[tuple[str, int, Axis]] = field(default_factory=list)
    op: str = ""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.schema = schema_of(self.step.op)
        self.op, self.args, self.kwargs = self.step.op, self.step.args, dict(self.step.kwargs)
        self._arguments = {a.name: a.default_value for a in self.schema.arguments}
        positional = [a.name for a in self.schema.arguments]
        self._arguments.update(zip(positional, self.step.args, strict=False))
        self._arguments.update(self.step.kwargs)

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise TraceError(
                f"the rule of {self.step.op} asks for the argument {name!r}, but it has "
                f"{', '.join(self._arguments)}. Correct the rule; call.get({name!r}) is None where an "
                "overload has no such argument."
            )
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
        """The shape of the tensor that is returned (the first one, where there are several)."""
        return self.shapes[0]

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of all tensors that are returned."""
        found = self.step.shape
        return found if isinstance(found, list) else [found] if found is not None else []

    def each(self, labels: Labels) -> Result:
        """Return the same labels for every tensor that is returned."""
        return [labels] * len(self.shapes) if isinstance(self.step.shape, list) else labels

    def unify(self, one: Axis, other: Axis) -> None:
        """Make two axes the same axis."""
        self.algebra.unify(one, other)

    def keep(self, *axes: Axis) -> None:
        """Pin axes: their positions have a meaning by their number, so they are never cut."""
        for axis in axes:
            pin(axis)

    def broadcast(self, one: Sequence[Axis], other: Sequence[Axis]) -> list[Axis]:
        """Return two labels broadcast from the right: axes that are not of size 1 are the same axis."""
        longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
        result = list(longer)
        for back, axis in enumerate(reversed(shorter), start=1):
            if resolve(axis):
                if resolve(result[-back]):
                    self.unify(result[-back], axis)
                result[-back] = axis
        return result

    def resize(self, name: str, axes: Sequence[Axis]) -> None:
        """Let each integer of a list argument follow the size of an axis."""
        self.edits[name] = [SizeOf(axis) for axis in axes]

    def count(self, name: str, axis: Axis, *, per_group: int | None = None) -> None:
        """Let an integer argument follow the size of an axis, or its number of norm groups."""
        self.edits[name] = SizeOf(axis, per_group)

    def rewrite(self, op: str, *args: Any) -> None:
        """Let the sub-model run another operation that does the same in the full model.

        ``resize`` and ``count`` then speak of its arguments.
        """
        self.op, self.args, self.kwargs = op, args, {}

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
