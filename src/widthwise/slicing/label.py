"""Follow the axes through a program and settle them into channel groups and layouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from widthwise.core.errors import TraceError, unknown_name
from widthwise.slicing.axes import (
    Algebra,
    Atom,
    Axis,
    Mismatch,
    fixed_axis,
    free_axis,
    pin,
    resolve,
    size_of,
)
from widthwise.slicing.graph import BATCH
from widthwise.slicing.ir import GroupCount, Program, Shape, Size, Step, Tensor, references
from widthwise.slicing.layout import Factor, Layout, Parts
from widthwise.slicing.rules import RULES, Call, Labels
from widthwise.slicing.rules.base import Result, SizeOf


@dataclass(frozen=True)
class Labelled:
    """A program whose sizes follow its channel groups.

    Attributes:
        program: The program; its size arguments are ``Size`` or ``GroupCount`` where a group decides them.
        groups: Group name -> number of channels of the full model.
        layouts: Tensor name -> layout of each axis.
        macs: Products of axes; their sum is the number of multiply-accumulates of one sample.
        output_tensors: Names of the tensors that own an axis of the output.
    """

    program: Program
    groups: dict[str, int]
    layouts: dict[str, tuple[Layout, ...]]
    macs: tuple[Layout, ...]
    output_tensors: tuple[str, ...]


def label(
    program: Program,
    tensors: Mapping[str, Tensor],
    input_shapes: Mapping[str, Shape],
    freeze: Iterable[str],
) -> Labelled:
    """Label every axis of a program.

    Args:
        program: The captured program.
        tensors: The model's parameters and buffers.
        input_shapes: Shapes of the inputs, with ``BATCH`` for the batch.
        freeze: Paths of modules whose output channels stay whole.

    Raises:
        TraceError: if an operation has no rule or mixes channels in a way that cannot be cut.
    """
    algebra = Algebra()
    batch = fixed_axis(BATCH)
    own: dict[str, Labels] = {
        name: tuple(free_axis(n) for n in tensor.shape) for name, tensor in tensors.items()
    }
    labels: dict[str, Result] = dict(own)
    for name, shape in input_shapes.items():
        labels[name] = tuple(batch if n == BATCH else fixed_axis(n) for n in shape)
    for name, constant in program.constants.items():
        labels[name] = tuple(fixed_axis(n) for n in constant.shape)
    frozen = set(freeze)
    calls: list[Call | None] = []
    for step in program.steps:
        call = _follow(step, algebra, labels)
        calls.append(call)
        if frozen.intersection(step.leaves):
            _pin_all(labels.get(step.name, ()))
    outputs = [labels[name] for name in references(program.output) if name in labels]
    at_output = {atom for found in outputs for axis in _axes(found) for atom in resolve(axis)} - {*batch}
    owners = tuple(
        name for name, axes in own.items() if any(at_output.intersection(resolve(axis)) for axis in axes)
    )
    for found in outputs:
        _pin_all(found)
    algebra.settle()
    names = _name_groups(program, own, tensors)
    settle = _Settler(names)
    steps = tuple(
        step if call is None else settle.step(step, call)
        for step, call in zip(program.steps, calls, strict=True)
    )
    return Labelled(
        program=replace(program, steps=steps),
        groups={name: atom.size for atom, name in names.items()},
        layouts={name: tuple(settle.layout(axis) for axis in axes) for name, axes in own.items()},
        macs=tuple(settle.per_sample(axis) for call in calls if call for axis in call.macs),
        output_tensors=owners,
    )


def check_freeze(freeze: Iterable[str], known: Iterable[str], steps: Iterable[Step]) -> None:
    """Refuse names of modules that do not exist or never run.

    Raises:
        TraceError: for the first such name.
    """
    known = list(known)
    left = {path for step in steps for path in step.leaves}
    for name in freeze:
        if name not in known:
            raise TraceError(unknown_name("freeze", name, known))
        if name not in left:
            raise TraceError(
                f"freeze is {name!r}, but the forward never uses that module's output. Remove it from freeze."
            )


def _follow(step: Step, algebra: Algebra, labels: dict[str, Result]) -> Call | None:
    """Label a step's value. Returns the call, or None for a step on numbers."""
    if step.op == "operator.getitem":
        source, index = step.args
        found = labels.get(source.name)
        if isinstance(found, list):
            labels[step.name] = found[index]
            return None
    takes_tensors = any(name in labels for name in references([step.args, step.kwargs]))
    if step.shape is None and (step.op.startswith("aten.sym_") or not takes_tensors):
        return None  # arithmetic on the batch size
    namespace, kind, *_ = step.op.split(".")
    rule = RULES.get(kind) or RULES.get(kind.removesuffix("_"))
    if rule is None or step.shape is None or namespace != "aten":
        raise _unknown(step, labels)
    call = Call(step, algebra, labels)
    try:
        result = rule(call)
    except Mismatch as error:
        raise TraceError(
            f"{step.place} regroups channels ({error}), but channels can only be cut where they line up. "
            "Name the module that makes these channels in freeze, so that they stay whole."
        ) from error
    _check_shapes(step, result)
    labels[step.name] = result
    return call


def _check_shapes(step: Step, result: Result) -> None:
    """A rule that disagrees with the traced shapes is wrong: better no slice than a wrong one."""
    shapes = [tuple(size_of(axis) for axis in labels) for labels in _each(result)]
    traced = step.shape if isinstance(step.shape, list) else [step.shape]
    if shapes != traced:
        raise TraceError(
            f"{step.place} has shape {traced}, but its rule expects {shapes}. Use another operation there."
        )


def _unknown(step: Step, labels: Mapping[str, Result]) -> TraceError:
    shapes = [
        str(tuple("batch" if size_of(axis) == BATCH else size_of(axis) for axis in found)).replace("'", "")
        for name in references([step.args, step.kwargs])
        if isinstance(found := labels.get(name), tuple)
    ]
    return TraceError(
        f"{step.place} takes {' and '.join(shapes) or 'no tensor'}, but no rule says where its channels go. "
        "Write it with operations that have one (see widthwise.slicing.rules) or add a rule."
    )


def _each(result: Result) -> list[Labels]:
    return result if isinstance(result, list) else [result]


def _axes(result: Result) -> list[Axis]:
    return [axis for labels in _each(result) for axis in labels]


def _pin_all(result: Result) -> None:
    for axis in _axes(result):
        pin(axis)


def _name_groups(
    program: Program, own: Mapping[str, Labels], tensors: Mapping[str, Tensor]
) -> dict[Atom, str]:
    """Name each free atom on a parameter after the module that owns the first parameter with it."""
    names: dict[Atom, str] = {}
    used = [name for step in program.steps for name in references([step.args, step.kwargs]) if name in own]
    for tensor in dict.fromkeys(used):
        if not tensors[tensor].parameter:
            continue
        for axis in own[tensor]:
            for atom in _free_atoms(axis):
                if atom not in names:
                    names[atom] = _unique(tensor, set(names.values()))
    return names


def _free_atoms(axis: Axis) -> list[Atom]:
    found: list[Atom] = []
    for atom in resolve(axis):
        if atom.parts:
            found.extend(inner for part in atom.parts for inner in _free_atoms(part))
        elif not atom.pinned:
            found.append(atom)
    return found


def _unique(tensor: str, taken: set[str]) -> str:
    module = tensor.rpartition(".")[0]
    candidates = [module, tensor] if module else [tensor]
    return next(
        name
        for name in (*candidates, *(f"{tensor}.{i}" for i in range(2, len(taken) + 3)))
        if name not in taken
    )


class _Settler:
    """Turns labels into layouts, and the edits of calls into arguments."""

    def __init__(self, names: Mapping[Atom, str]) -> None:
        self.names = names

    def layout(self, axis: Axis) -> Layout:
        """Return the layout of an axis, neighbouring fixed factors joined."""
        factors: list[Factor] = []
        for atom in resolve(axis):
            factor: Factor = atom.size
            if atom in self.names:
                factor = self.names[atom]
            elif not atom.fixed and atom.parts:
                factor = Parts(tuple(self.layout(part) for part in atom.parts))
            if isinstance(factor, int) and factors and isinstance(factors[-1], int):
                factors[-1] *= factor
            else:
                factors.append(factor)
        return tuple(factors)

    def per_sample(self, axis: Axis) -> Layout:
        """Return a product of axes without the batch."""
        return tuple(f // BATCH if isinstance(f, int) and f % BATCH == 0 else f for f in self.layout(axis))

    def step(self, step: Step, call: Call) -> Step:
        """Return a step whose size arguments follow the groups."""
        args, kwargs = list(call.args), dict(step.kwargs)
        positions = {argument.name: i for i, argument in enumerate(call.schema.arguments)}
        for name, edit in call.edits.items():
            position = positions[name]
            given = args[position] if position < len(args) else kwargs.get(name)
            value = self._settled(given, edit, step)
            if position < len(args):
                args[position] = value
            elif value is not None:
                kwargs[name] = value
        return replace(step, op=call.op, args=tuple(args), kwargs=kwargs)

    def _settled(self, given: Any, edit: SizeOf | list[SizeOf], step: Step) -> Any:
        if isinstance(edit, list):
            values = [self._settled(item, one, step) for item, one in zip(given, edit, strict=True)]
            if values.count(-1) > 1:
                raise TraceError(
                    f"{step.place} joins the batch with channels twice, but only one such size can be found. "
                    "Name the module that makes these channels in freeze."
                )
            return values
        layout = self.layout(edit.axis)
        fixed = prod(factor for factor in layout if isinstance(factor, int))
        if all(isinstance(factor, int) for factor in layout):
            # A size that is left open stays so only where the batch is in it: there may be one such size.
            return fixed if given == -1 and fixed % BATCH else given
        if edit.per_group is not None:
            return GroupCount(layout, edit.per_group)
        return Size(layout) if fixed % BATCH else -1
