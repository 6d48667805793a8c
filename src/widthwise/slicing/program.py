"""From a program to an ordinary module of one width."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from widthwise.slicing.ir import (
    GroupCount,
    InputDevice,
    Mode,
    ModelDtype,
    Program,
    Ref,
    Shape,
    Size,
    Tensor,
    transform,
)


def build(
    program: Program,
    tensors: Sequence[Tensor],
    aliases: Mapping[str, str],
    shapes: Mapping[str, Shape],
    counts: Mapping[str, int],
) -> fx.GraphModule:
    """Return a module that runs the program, with uninitialised parameters (and buffers of zeros).

    Its parameters and buffers have the model's own dotted names; tied names share one parameter. It follows
    its own ``training`` flag.

    Args:
        program: The labelled program.
        tensors: The model's parameters and buffers.
        aliases: Tied names -> the name that stands for them.
        shapes: Shape of each tensor at this width.
        counts: Channels of each group at this width.
    """
    root = nn.Module()
    for tensor in tensors:
        _register(root, tensor.name, _empty(tensor, shapes[tensor.name]), persistent=tensor.persistent)
    for name, first in aliases.items():
        module, leaf = _owner(root, first)
        _register(root, name, getattr(module, leaf), persistent=True)
    for name, value in program.constants.items():
        _register(root, name, value.clone(), persistent=False)
    module = fx.GraphModule(root, _graph(program, counts, _first_float(tensors)), class_name="SubModel")
    # The graph module copied what the forward uses; this brings back the model's order and the unused rest.
    module._modules, module._parameters, module._buffers = root._modules, root._parameters, root._buffers
    module._non_persistent_buffers_set = root._non_persistent_buffers_set
    return module


def _empty(tensor: Tensor, shape: Shape) -> torch.Tensor:
    if tensor.parameter:
        return nn.Parameter(torch.empty(shape, dtype=tensor.dtype), requires_grad=tensor.requires_grad)
    return torch.zeros(shape, dtype=tensor.dtype)


def _owner(root: nn.Module, name: str) -> tuple[nn.Module, str]:
    *path, leaf = name.split(".")
    module = root
    for step in path:
        if step not in module._modules:
            module.add_module(step, nn.Module())
        module = getattr(module, step)
    return module, leaf


def _register(root: nn.Module, name: str, value: torch.Tensor, *, persistent: bool) -> None:
    module, leaf = _owner(root, name)
    if isinstance(value, nn.Parameter):
        module.register_parameter(leaf, value)
    else:
        module.register_buffer(leaf, value, persistent=persistent)


def _first_float(tensors: Sequence[Tensor]) -> str:
    return next((t.name for t in tensors if t.parameter and t.dtype.is_floating_point), "")


def _graph(program: Program, counts: Mapping[str, int], typical: str) -> fx.Graph:
    graph = fx.Graph()
    values = {name: graph.placeholder(name) for name in program.inputs}
    training: list[fx.Node] = []

    def flag() -> fx.Node:
        if not training:
            training.append(graph.get_attr("training"))
        return training[0]

    def bind(leaf: Any) -> Any:
        match leaf:
            case Ref(name):
                if name not in values:
                    values[name] = graph.get_attr(name)
                return values[name]
            case Size() | GroupCount():
                return leaf.at(counts)
            case Mode(True, False):
                return flag()
            case Mode(training=on, evaluation=off):
                return graph.call_function(choose, (flag(), on, off))
            case InputDevice():
                return graph.call_function(getattr, (values[program.inputs[0]], "device"))
            case ModelDtype():
                return graph.call_function(getattr, (bind(Ref(typical)), "dtype"))
            case _:
                return leaf

    for step in program.steps:
        args, kwargs = transform(step.args, bind), transform(step.kwargs, bind)
        values[step.name] = graph.call_function(_function(step.op), tuple(args), kwargs)
    graph.output(transform(program.output, bind))
    return graph


def choose(training: bool, on: float, off: float) -> float:
    """Return the constant of the mode that the module is in."""
    return on if training else off


def _function(op: str) -> Any:
    # A view of a channels-last activation fails where a reshape gives the same values, by copying if it must.
    op = op.replace("aten.view.default", "aten.reshape.default")
    namespace, _, name = op.rpartition(".")
    if namespace.count("."):
        space, kind = namespace.split(".")
        return getattr(getattr(getattr(torch.ops, space), kind), name)
    return getattr(importlib.import_module(namespace), name)
