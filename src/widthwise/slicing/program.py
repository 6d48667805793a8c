"""From programs to ordinary modules of any width.

The code of a forward is written once for all widths: the sizes that follow the width are looked up in the
module that runs it.
"""

from __future__ import annotations

import importlib
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import fx, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from widthwise.core.outputs import logits_of
from widthwise.core.protocols import StackedForward
from widthwise.slicing.ir import (
    BATCH,
    BatchSize,
    GroupCount,
    InputDevice,
    Made,
    ModelDtype,
    Program,
    Ref,
    Size,
    Tensor,
    transform,
)
from widthwise.slicing.kernels import KERNELS
from widthwise.slicing.stacked import form_of, has_forms

_FORWARD, _SIZES = "widthwise.forward", "widthwise.sizes"


class Forward:
    """The forward of all sub-models of one model. Pickles as its programs.

    Attributes:
        programs: In training and in evaluation mode; one if they are the same.
        arguments: Names of the forward's arguments.
    """

    def __init__(self, programs: Sequence[Program], tensors: Sequence[Tensor]) -> None:
        self.programs = tuple(programs)
        self.arguments = tuple(name.strip("<>") for name in self.programs[0].inputs)
        self._parameters = tuple(t.name for t in tensors if t.parameter)
        self._dtype_of = next((t.name for t in tensors if t.parameter and t.dtype.is_floating_point), "")

    @cached_property
    def functions(self) -> list[Callable[..., Any]]:
        """The compiled programs: functions of a module, its sizes and the inputs."""
        return [_compiled(program, index, self._dtype_of) for index, program in enumerate(self.programs)]

    @cached_property
    def stacked(self) -> Callable[..., torch.Tensor] | None:
        """The program in training mode for a stack of sub-models, if each of its steps has a form for it.

        A function of parameters [K, ...] by name, sizes and the input [K, B, ...].
        """
        if not has_forms(self.programs[0], self._parameters):
            return None
        function = _compiled(self.programs[0], 0, self._dtype_of, stacked=True)
        return partial(function, None)

    def sizes(self, counts: Mapping[str, int]) -> list[tuple[int, ...]]:
        """Return for each program the sizes that its code looks up, where each group has so many channels."""
        return [tuple(_number(leaf, counts) for leaf in _sizes(program)) for program in self.programs]

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("functions", "stacked")}

    def __deepcopy__(self, memo: Any) -> Forward:
        return self


class SubModel(nn.Module):
    """A dense sub-model: the kept channels behind the model's own forward.

    Its parameters and buffers have the model's names, also where they are tied; it follows its own
    ``training`` flag, and takes the arguments of the example inputs by position or by name.
    """

    def __init__(self, forward: Forward, sizes: list[tuple[int, ...]]) -> None:
        """Make a module without parameters."""
        super().__init__()
        # Names with a dot: no module or parameter of the model's own has one.
        self.__dict__[_FORWARD], self.__dict__[_SIZES] = forward, sizes

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> Any:
        """Run the model's forward on the kept channels."""
        forward: Forward = self.__dict__[_FORWARD]
        if named:
            inputs = _by_position(forward.arguments[len(inputs) :], inputs, named)
        mode = 0 if self.training else -1
        return forward.functions[mode](self, self.__dict__[_SIZES][mode], *inputs)


def stacked_forward(module: nn.Module) -> StackedForward:
    """Return the forward of K sub-models of one shape in training mode.

    Returns:
        A function of their parameters [K, ...] by name and of their inputs [K, B, ...] that returns their
        class scores [K, B, classes].
    """
    forward: Forward = module.__dict__[_FORWARD]
    if function := forward.stacked:
        sizes = module.__dict__[_SIZES][0]
        return lambda params, inputs: function(params, sizes, inputs)

    def scores(params: Mapping[str, torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        return logits_of(functional_call(module, dict(params), (inputs,)))

    # Torch's other kernels of attention are not batched: they would run client by client.
    return sdpa_kernel(SDPBackend.MATH)(torch.vmap(scores))


def _by_position(names: Sequence[str], inputs: Any, named: Mapping[str, torch.Tensor]) -> Any:
    if set(named) != set(names):
        raise TypeError(
            f"the sub-model is called with {', '.join(sorted(named))}, but it was traced with "
            f"{', '.join(names) or 'positional arguments only'}. Call it as the example."
        )
    return (*inputs, *(named[name] for name in names))


def build(
    forward: Forward,
    tensors: Sequence[Tensor],
    aliases: Mapping[str, str],
    values: Mapping[str, torch.Tensor],
    sizes: list[tuple[int, ...]],
) -> SubModel:
    """Return a sub-model that holds given tensors.

    Args:
        forward: The forward of all widths.
        tensors: The model's parameters and buffers.
        aliases: Tied names -> the name that stands for them.
        values: Values of its parameters and buffers, by name; they are not copied.
        sizes: The forward's sizes at this width.
    """
    root = SubModel(forward, sizes)
    device = next((value.device for value in values.values()), None)
    owners: dict[str, nn.Module] = {"": root}
    for tensor in tensors:
        module, leaf = _owner(owners, tensor.name)
        if tensor.parameter:
            module._parameters[leaf] = nn.Parameter(values[tensor.name], tensor.requires_grad)
            continue
        module._buffers[leaf] = values[tensor.name]
        if not tensor.persistent:
            module._non_persistent_buffers_set.add(leaf)
    for name, first in aliases.items():
        (source, stored), (module, leaf) = _owner(owners, first), _owner(owners, name)
        kind = "_parameters" if stored in source._parameters else "_buffers"
        getattr(module, kind)[leaf] = getattr(source, kind)[stored]
    for index, program in enumerate(forward.programs):
        for name, value in program.constants.items():
            root.register_buffer(_constant(name, index), value.to(device, copy=True), persistent=False)
    return root


def _constant(name: str, program: int) -> str:
    return f"{name} of {program}"


def _owner(owners: dict[str, nn.Module], name: str) -> tuple[nn.Module, str]:
    """Return the module that owns a dotted name, made where it is not there yet, and the rest of the name.

    Straight into the dictionaries of modules: the checks of ``register_parameter`` cost more than the copies.
    """
    path, _, leaf = name.rpartition(".")
    if path not in owners:
        parent, child = _owner(owners, path)
        owners[path] = parent._modules[child] = nn.Module()
    return owners[path], leaf


def _sizes(program: Program) -> list[Size | GroupCount]:
    """Return the sizes of a program that follow the width, in the order of its code."""
    found: list[Size | GroupCount] = []
    for step in program.steps:
        transform(
            (step.args, step.kwargs),
            lambda leaf: found.append(leaf) if isinstance(leaf, Size | GroupCount) else None,
        )
    return found


def _has_batch(leaf: Size | GroupCount) -> bool:
    return isinstance(leaf, Size) and leaf.has_batch


def _number(leaf: Size | GroupCount, counts: Mapping[str, int]) -> int:
    return leaf.at(counts) // BATCH if _has_batch(leaf) else leaf.at(counts)


def _compiled(program: Program, index: int, dtype_of: str, stacked: bool = False) -> Callable[..., Any]:
    code = _graph(program, index, dtype_of, stacked).python_code("self")
    scope = dict(code.globals)
    exec(compile(code.src, "<forward of a sub-model>", "exec"), scope)
    function: Callable[..., Any] = scope["forward"]
    return function


def _graph(program: Program, index: int, dtype_of: str, stacked: bool) -> fx.Graph:
    graph = fx.Graph()
    own = graph.placeholder("tensors") if stacked else None
    sizes = graph.placeholder("sizes")
    values = {name: graph.placeholder(f"input_{i}") for i, name in enumerate(program.inputs)}
    first, looked_up = values[program.inputs[0]], itertools.count()
    batch: list[fx.Node] = []

    def batch_size(times: Any) -> Any:
        if not batch:
            batch.append(graph.call_function(torch.Tensor.size, (first, int(stacked))))
        return batch[0] if times == 1 else graph.call_function(operator.mul, (batch[0], times))

    def bind(leaf: Any) -> Any:
        match leaf:
            case Ref(name):
                if name not in values:
                    stored = _constant(name, index) if name in program.constants else name
                    values[name] = (
                        graph.call_function(operator.getitem, (own, stored))
                        if own is not None
                        else graph.get_attr(stored)
                    )
                return values[name]
            case Size() | GroupCount():
                number = graph.call_function(operator.getitem, (sizes, next(looked_up)))
                return batch_size(number) if _has_batch(leaf) else number
            case BatchSize(times):
                return batch_size(times)
            case InputDevice():
                return graph.call_function(getattr, (first, "device"))
            case ModelDtype():
                return graph.call_function(getattr, (bind(Ref(dtype_of)), "dtype"))
            case Made(kind, fields):
                return graph.call_function(kind, (), fields)
            case _:
                return leaf

    for step in program.steps:
        args, kwargs = transform((step.args, step.kwargs), bind)
        function = (stacked and form_of(step.op)) or function_of(step.op)
        value = graph.call_function(function, tuple(args), kwargs)
        values[step.name] = graph.call_method("detach", (value,)) if step.detached else value
    graph.output(transform(program.output, bind))
    return graph


def function_of(op: str) -> Any:
    """Return the function that a step calls."""
    if op in KERNELS:
        return KERNELS[op]
    # A view of a channels-last activation fails where a reshape gives the same values, by copying if it must.
    op = op.replace("aten.view.default", "aten.reshape.default")
    namespace, _, name = op.rpartition(".")
    if namespace.count("."):
        space, kind = namespace.split(".")
        return getattr(getattr(getattr(torch.ops, space), kind), name)
    return getattr(importlib.import_module(namespace), name)
