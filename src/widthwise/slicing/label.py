"""Follow the axes through programs and settle them into channel groups and layouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from widthwise.core.errors import TraceError, unknown_name
from widthwise.slicing.axes import (
    Algebra,
    Atom,
    Axis,
    Mismatch,
    fixed_axis,
    free_atoms,
    free_axis,
    pin,
    resolve,
    size_of,
)
from widthwise.slicing.ir import BATCH, Program, Shape, Step, Tensor, references
from widthwise.slicing.layout import Layout
from widthwise.slicing.rules import Call, Labels, Result, rule_of
from widthwise.slicing.settle import Settler


@dataclass(frozen=True)
class Labelled:
    """Programs whose sizes follow their channel groups.

    Attributes:
        programs: The programs; their size arguments are ``Size`` or ``GroupCount`` where groups decide.
        groups: Group name -> number of channels of the full model.
        layouts: Tensor name -> layout of each axis.
        macs: Products of axes; their sum is the number of multiply-accumulates of one sample.
        output_tensors: Names of the tensors that own an axis of the output.
        couplings: Group name -> the operations at which parameters met on its axis.
        kept_whole: Where and why axes stay whole, since their factors do not line up.
    """

    programs: tuple[Program, ...]
    groups: dict[str, int]
    layouts: dict[str, tuple[Layout, ...]]
    macs: tuple[Layout, ...]
    output_tensors: tuple[str, ...]
    couplings: dict[str, tuple[str, ...]]
    kept_whole: tuple[str, ...]


def label(
    programs: Sequence[Program],
    tensors: Mapping[str, Tensor],
    input_shapes: Mapping[str, Shape],
    freeze: Iterable[str] = (),
    modules: Iterable[str] = (),
    *,
    inside: bool = False,
) -> Labelled:
    """Label every axis of a model's programs.

    Args:
        programs: The captured programs (training, evaluation).
        tensors: The model's parameters and buffers.
        input_shapes: Shapes of the inputs, with ``BATCH`` for the batch.
        freeze: Paths of modules whose output channels stay whole, or names of channel groups.
        modules: Paths of all modules.
        inside: Whether regrouped axes (heads) are cut inside each block.

    Raises:
        TraceError: if an operation has no rule or mixes channels in a way that cannot be cut, or a frozen
            name is unknown.
    """
    algebra = Algebra(inside=inside)
    batch = fixed_axis(BATCH)
    own = {name: _own(tensor) for name, tensor in tensors.items()}
    inputs = {
        name: tuple(batch if n == BATCH else fixed_axis(n) for n in shape)
        for name, shape in input_shapes.items()
    }
    frozen, modules = list(freeze), set(modules)
    left = {path for program in programs for step in program.steps for path in step.leaves}
    calls: list[list[Call | None]] = []
    outputs: list[Result] = []
    for program in programs:
        constants = {name: _fixed(value.shape) for name, value in program.constants.items()}
        labels: dict[str, Result] = {**own, **inputs, **constants}
        items = _used_items(program)
        calls.append(
            [
                _follow(step, algebra, labels, left.intersection(frozen), items.get(step.name, frozenset()))
                for step in program.steps
            ]
        )
        outputs += [labels[name] for name in references(program.output) if name in labels]
    at_output = {atom for found in outputs for axis in _axes(found) for atom in resolve(axis)} - {*batch}
    owners = tuple(
        name for name, axes in own.items() if any(at_output.intersection(resolve(axis)) for axis in axes)
    )
    for found in outputs:
        _pin_all(found)
    algebra.settle(_alone(own))
    names = _name_groups(programs, own, tensors)
    for name in frozen:
        if name not in left:
            _freeze_group(name, names, modules)
    settle = Settler(names)
    settled = tuple(
        replace(program, steps=tuple(settle.step(*pair) for pair in zip(program.steps, called, strict=True)))
        for program, called in zip(programs, calls, strict=True)
    )
    return Labelled(
        programs=settled,
        groups={name: atom.size for atom, name in names.items()},
        layouts={name: tuple(settle.layout(axis) for axis in axes) for name, axes in own.items()},
        macs=tuple(settle.per_sample(axis) for call in calls[-1] if call for axis in call.macs),
        output_tensors=owners,
        couplings=_couplings(algebra, names),
        kept_whole=tuple(
            dict.fromkeys(f"{_where(place)} ({reason})" for place, reason in algebra.kept_whole)
        ),
    )


def _own(tensor: Tensor) -> Labels:
    """Return the first labels of a parameter or buffer. What counts (integers) is never cut."""
    axes = tuple(free_axis(n) if tensor.dtype.is_floating_point else fixed_axis(n) for n in tensor.shape)
    for atom in (atom for axis in axes for atom in axis if tensor.parameter):
        atom.owner = tensor.name.rpartition(".")[0]
    return axes


def _used_items(program: Program) -> dict[str, frozenset[int]]:
    """Return for each value that is several tensors which of them are used."""
    used = set(references(program.output))
    items: dict[str, frozenset[int]] = {}
    for step in reversed(program.steps):
        if step.op != "operator.getitem":
            used.update(references([step.args, step.kwargs]))
        elif step.name in used:
            source, index = step.args
            items[source.name] = items.get(source.name, frozenset()) | {index}
    return items


def _follow(
    step: Step, algebra: Algebra, labels: dict[str, Result], frozen: set[str], used: frozenset[int]
) -> Call | None:
    """Label a step's value. Returns the call, or None for an item of a list."""
    if step.op == "operator.getitem":
        source, index = step.args
        found = labels.get(source.name)
        if isinstance(found, list):
            labels[step.name] = found[index]
            _freeze_value(step, labels, frozen)
        return None
    algebra.place = step.op.split(".")[1], step.module
    call = Call(step, algebra, labels, used)
    try:
        result = rule_of(call)(call)
    except Mismatch as error:
        raise TraceError(
            f"{step.place} cannot be followed ({error}), but a slice must know where each channel goes. "
            "Name the module that makes these channels in freeze, so that they stay whole."
        ) from error
    _check_shapes(step, result)
    labels[step.name] = result
    _freeze_value(step, labels, frozen)
    return call


def _freeze_value(step: Step, labels: Mapping[str, Result], frozen: set[str]) -> None:
    if frozen.intersection(step.leaves):
        _pin_all(labels[step.name])


def _check_shapes(step: Step, result: Result) -> None:
    """A rule that disagrees with the traced shapes is wrong: better no slice than a wrong one."""
    shapes = [tuple(size_of(axis) for axis in labels) for labels in _each(result)]
    traced = step.shape if isinstance(step.shape, list) else [step.shape] if step.shape is not None else []
    if shapes != traced:
        raise TraceError(
            f"{step.place} has shape {traced}, but its rule expects {shapes}. Use another operation there."
        )


def _fixed(shape: Iterable[int]) -> Labels:
    return tuple(fixed_axis(n) for n in shape)


def _each(result: Result) -> list[Labels]:
    return result if isinstance(result, list) else [result]


def _axes(result: Result) -> list[Axis]:
    return [axis for labels in _each(result) for axis in labels]


def _pin_all(result: Result) -> None:
    for axis in _axes(result):
        pin(axis)


def _alone(own: Mapping[str, Labels]) -> set[Atom]:
    """Return the atoms that are the only free one on some axis of a tensor."""
    found: set[Atom] = set()
    for axes in own.values():
        for axis in axes:
            free = free_atoms(axis)
            found.update(free if len(free) == 1 else [])
    return found


def _name_groups(
    programs: Sequence[Program], own: Mapping[str, Labels], tensors: Mapping[str, Tensor]
) -> dict[Atom, str]:
    """Name each free atom on a parameter after the module that owns the first parameter with it."""
    names: dict[Atom, str] = {}
    used = [
        name
        for program in programs
        for step in program.steps
        for name in references([step.args, step.kwargs])
        if name in own
    ]
    for tensor in dict.fromkeys(used):
        if not tensors[tensor].parameter:
            continue
        for axis in own[tensor]:
            for atom in free_atoms(axis):
                if atom not in names:
                    names[atom] = _unique(tensor, set(names.values()))
    return names


def _unique(tensor: str, taken: set[str]) -> str:
    module = tensor.rpartition(".")[0]
    candidates = [module, tensor] if module else [tensor]
    return next(
        name
        for name in (*candidates, *(f"{tensor}.{i}" for i in range(2, len(taken) + 3)))
        if name not in taken
    )


def _freeze_group(name: str, names: dict[Atom, str], modules: set[str]) -> None:
    """Take a group out of those that are cut.

    Raises:
        TraceError: if the name is neither a group's nor a module's that runs.
    """
    atom = next((atom for atom, own in names.items() if own == name), None)
    if atom is not None:
        pin((atom,))
        del names[atom]
    elif name in modules:
        parent = name.rpartition(".")[0]
        hint = f", or name {parent!r}, which may use its weights" if parent else ""
        raise TraceError(
            f"freeze is {name!r}, but that module makes no value that the forward uses. Remove it from freeze"
            f"{hint}."
        )
    else:
        raise TraceError(unknown_name("freeze", name, sorted({*modules, *names.values()})))


def _couplings(algebra: Algebra, names: Mapping[Atom, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {name: [] for name in names.values()}
    for axis, place in algebra.meetings:
        for atom in free_atoms(axis):
            if atom in names:
                found[names[atom]].append(_where(place))
    return {name: tuple(dict.fromkeys(places)) for name, places in found.items()}


def _where(place: tuple[str, str]) -> str:
    operation, module = place
    return f"{operation} in {module or 'the model'}"
