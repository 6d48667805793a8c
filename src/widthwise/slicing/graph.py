"""Translate an exported graph into a ``Program``.

The batch is the one dimension that may vary. In the shapes of a program it is ``BATCH``, a prime that no
layer has, so that every size which contains the batch is a multiple of it and products stay unambiguous.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from widthwise.slicing.ir import InputDevice, ModelDtype, Program, Ref, Shape, Step
from widthwise.slicing.standins import real_name

BATCH = 1_000_003
OUTER = "model"  # name of the user's model inside the wrapper that is exported
_INSIDE = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


def is_users(file: str) -> bool:
    """Whether a source file is the user's: neither torch's nor ours."""
    return not file.startswith(_INSIDE)


def schema_of(op: str) -> Any:
    """Return the schema of an operation by its name ("aten.relu.default")."""
    namespace, name, overload = op.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)._schema


def read(exported: ExportedProgram, model: nn.Module) -> Program:
    """Translate an exported graph into a program whose values are numbered by their position."""
    canonical = {id(value): name for name, value in _named(model, remove_duplicate=True)}
    by_name = dict(_named(model, remove_duplicate=False))
    names: dict[str, str] = {}
    inputs: list[str] = []
    constants: dict[str, torch.Tensor] = {}
    for spec in exported.graph_signature.input_specs:
        argument = spec.arg.name
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            assert spec.target is not None
            names[argument] = canonical[id(by_name[spec.target.removeprefix(f"{OUTER}.")])]
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            assert spec.target is not None
            names[argument] = f"constant_{len(constants)}"
            value = exported.constants[spec.target]
            assert isinstance(value, torch.Tensor)
            constants[names[argument]] = value.detach().clone()
        else:
            names[argument] = f"input_{len(inputs)}"
            inputs.append(names[argument])
    floats = (value.dtype for value in model.parameters() if value.is_floating_point())
    dtype = next(floats, torch.get_default_dtype())
    steps: list[Step] = []
    for node in exported.graph.nodes:
        if node.op == "call_function" and not _is_bookkeeping(node):
            names[node.name] = f"v{len(steps)}"
            steps.append(_step(node, names, dtype))
    (results,) = next(node for node in exported.graph.nodes if node.op == "output").args
    spec = exported.call_spec.out_spec
    assert spec is not None
    output = pytree.tree_unflatten([_argument(result, names) for result in results], spec)
    return Program(tuple(inputs), tuple(steps), output, constants)


def _named(model: nn.Module, *, remove_duplicate: bool) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=remove_duplicate)
    yield from model.named_buffers(remove_duplicate=remove_duplicate)


def _is_bookkeeping(node: fx.Node) -> bool:
    """Whether a node only asserts something, or counts batches in an integer buffer (which nobody reads)."""
    name = str(node.target)
    if name.startswith(("aten._assert", "aten.sym_constrain", "aten._functional_assert")):
        return True
    if name.startswith("aten.add_.") and isinstance(node.args[0], fx.Node):
        target = node.args[0]
        return target.op == "placeholder" and not target.meta["val"].is_floating_point()
    return False


def _step(node: fx.Node, names: dict[str, str], dtype: torch.dtype) -> Step:
    stack = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    kwargs = {key: _argument(value, names) for key, value in node.kwargs.items()}
    makes = not any(isinstance(source.meta.get("val"), torch.Tensor) for source in node.all_input_nodes)
    if makes and kwargs.get("dtype") == dtype:
        kwargs["dtype"] = ModelDtype()
    return Step(
        name=names[node.name],
        op=_op_name(node.target),
        args=tuple(_argument(value, names) for value in node.args),
        kwargs=kwargs,
        shape=_shape(node.meta.get("val")),
        module=_module_path(stack[-1]) if stack else "",
        line=_source_line(node.meta.get("stack_trace") or ""),
        leaves=tuple(_left_modules(node, stack)),
    )


def _op_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return real_name(target)
    name: str = target.__name__
    return f"operator.{name}" if getattr(operator, name, None) is target else f"{target.__module__}.{name}"


def _argument(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_argument(item, names) for item in value]
    if isinstance(value, torch.device):
        return InputDevice()
    return Ref(names[value.name]) if isinstance(value, fx.Node) else value


def _shape(value: Any) -> Shape | list[Shape] | None:
    if isinstance(value, torch.Tensor):
        return tuple(_number(n) for n in value.shape)
    if isinstance(value, (list, tuple)) and all(isinstance(item, torch.Tensor) for item in value):
        return [tuple(_number(n) for n in item.shape) for item in value]
    return None


def _number(n: Any) -> int:
    if isinstance(n, int):
        return n
    expression = n.node.expr
    return int(expression.subs(dict.fromkeys(expression.free_symbols, BATCH)))


def _module_path(path: str) -> str:
    return path.removeprefix(OUTER).removeprefix(".") if path.startswith(OUTER) else ""


def _left_modules(node: fx.Node, stack: list[str]) -> Iterator[str]:
    """Yield the modules that a node's value leaves: it is used where they are no longer on the stack."""
    for path in stack:
        for user in node.users:
            around = [p for p, _ in (user.meta.get("nn_module_stack") or {}).values()]
            if path.startswith(OUTER) and path not in around:
                yield _module_path(path)
                break


def _source_line(trace: str) -> str:
    """Return the innermost frame outside torch of a node's stack trace."""
    places = [line.split('"')[1:] for line in trace.splitlines() if line.strip().startswith('File "')]
    users = [f"{file}:{rest.split(',')[1].split()[1]}" for file, rest in places if is_users(file)]
    return users[-1] if users else ""
