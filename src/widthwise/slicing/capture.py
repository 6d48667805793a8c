"""Capture a model's forward pass as a ``Program``: export it in both modes and merge the two graphs.

The batch is the one dimension that may vary. In the shapes of a program it is ``BATCH``, a prime that no layer
has, so that every size which contains the batch is a multiple of it and products stay unambiguous.
"""

from __future__ import annotations

import operator
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.export import Dim, ExportedProgram, export
from torch.export.graph_signature import InputKind
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from widthwise.core.errors import TraceError
from widthwise.slicing.ir import InputDevice, Mode, Program, Ref, Shape, Step, Tensor, references

BATCH = 1_000_003
_OUTER = "model"  # name of the user's model inside the wrapper that is exported
_TORCH = str(Path(torch.__file__).parent)

# A fake LSTM of torch unrolls every time step. Exporting these stand-ins of the same schema, whose fake
# kernels only make the outputs' shapes, keeps a recurrent layer one node and makes the export some sixty times faster.
_LIBRARY = torch.library.Library("widthwise", "DEF")
_RECURRENT: dict[Any, Any] = {}


def _recurrent_shapes(input: torch.Tensor, hx: Any, params: Any, *flags: Any) -> tuple[torch.Tensor, ...]:
    states = hx if isinstance(hx, (list, tuple)) else [hx]
    bidirectional = flags[-2]
    features = states[0].shape[-1] * (2 if bidirectional else 1)
    return input.new_empty(*input.shape[:-1], features), *(state.clone() for state in states)


for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    _schema = str(getattr(torch.ops.aten, _name).input._schema)
    _LIBRARY.define(_schema.removeprefix("aten::").replace(f"{_name}.input", _name))
    torch.library.register_fake(f"widthwise::{_name}", _recurrent_shapes, lib=_LIBRARY)
    _RECURRENT[getattr(torch, _name)] = getattr(torch.ops.widthwise, _name).default


class _StandIns(TorchFunctionMode):
    """Replaces the recurrent operations (on padded, not packed, sequences) by their stand-ins."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        stand_in = _RECURRENT.get(func)
        if stand_in is not None and isinstance(args[3], bool):
            return stand_in(*args)
        return func(*args, **(kwargs or {}))


class _Wrapper(nn.Module):
    """The model behind a forward of positional arguments, whatever its own signature is."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> Any:
        with _StandIns():
            return self.model(*inputs)


def capture(model: nn.Module, example_inputs: tuple[torch.Tensor, ...]) -> tuple[Program, dict[str, Shape]]:
    """Return the model's program and the shapes of its inputs. The model is left as it was.

    Raises:
        TraceError: if the forward cannot be followed for every input, or differs between training and
            evaluation by more than flags and rates.
    """
    inputs = tuple(torch.cat([x, x]) if x.ndim and x.shape[0] == 1 else x for x in example_inputs)
    modes = {module: module.training for module in model.modules()}
    try:
        programs = []
        for training in (True, False):
            model.train(training)
            programs.append(_read(_export(model, inputs), model))
    finally:
        for module, mode in modes.items():
            module.training = mode
    shapes = {
        name: tuple(BATCH if axis == 0 else n for axis, n in enumerate(x.shape))
        for name, x in zip(programs[0].inputs, inputs, strict=True)
    }
    return _merge(*programs), shapes


def tensors_of(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the model's parameters and buffers, and for each tied name the name that stands for it."""
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[int, str] = {}
    persistent = set(model.state_dict(keep_vars=True))
    for parameter, named in (
        (True, model.named_parameters(remove_duplicate=False)),
        (False, model.named_buffers(remove_duplicate=False)),
    ):
        for name, value in named:
            first = seen.setdefault(id(value), name)
            if first != name:
                aliases[name] = first
                continue
            tensors[name] = Tensor(
                name, tuple(value.shape), value.dtype, parameter, value.requires_grad, name in persistent
            )
    return tensors, aliases


def _export(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> ExportedProgram:
    batch = Dim("batch")
    dynamic = (tuple({0: batch} if x.ndim else {} for x in inputs),)
    devices = sorted({x.device.index or 0 for x in inputs if x.is_cuda})
    try:
        with torch.random.fork_rng(devices), warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")  # torch's own notes on modules that keep lists of their weights
            return export(_Wrapper(model), inputs, dynamic_shapes=dynamic, strict=False)
    except Exception as error:
        raise _explained(error, model) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's log while a failing export is turned into one message of ours."""
    import logging

    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _explained(error: Exception, model: nn.Module) -> TraceError:
    """Turn a failed export into a message that names the place in the user's code and the remedy."""
    name = type(model).__name__
    where = _user_frame(error)
    text = f"{type(error).__name__}: {error}"
    if "data-dependent" in text.lower() or "DataDependent" in text:
        return TraceError(
            f"the forward of {name} is data-dependent at {where}, but a slice must run the same operations for "
            "every input. Replace the branch or number that is read from a tensor by tensor operations "
            "(torch.where)."
        )
    if "Constraints violated" in text or "marked batch as dynamic" in text or "specialized" in text:
        return TraceError(
            f"the forward of {name} fixes the batch size, but batches of clients differ in size. "
            "Take the batch size from the input's shape instead of a number."
        )
    return TraceError(
        f"the forward of {name} is not traceable at {where} ({text.splitlines()[0]}), but its operations must be "
        "known before it runs. Call the model on the example inputs to see whether they fit, and keep to "
        "operations that torch.export supports."
    )


def _user_frame(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__))
    users = [f for f in frames if not f.filename.startswith(_TORCH) and f.filename != ours]
    return f"{users[-1].filename}:{users[-1].lineno}" if users else "an unknown line"


def _read(exported: ExportedProgram, model: nn.Module) -> Program:
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
            names[argument] = canonical[id(by_name[spec.target.removeprefix(f"{_OUTER}.")])]
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            assert spec.target is not None
            names[argument] = f"constant_{len(constants)}"
            value = exported.constants[spec.target]
            assert isinstance(value, torch.Tensor)
            constants[names[argument]] = value.detach().clone()
        else:
            names[argument] = f"input_{len(inputs)}"
            inputs.append(names[argument])
    steps = []
    for node in exported.graph.nodes:
        if node.op == "call_function" and not _is_bookkeeping(node):
            names[node.name] = f"v{len(steps)}"
            steps.append(_step(node, names))
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


def _step(node: fx.Node, names: dict[str, str]) -> Step:
    stack = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    return Step(
        name=names[node.name],
        op=_op_name(node.target),
        args=tuple(_argument(value, names) for value in node.args),
        kwargs={key: _argument(value, names) for key, value in node.kwargs.items()},
        shape=_shape(node.meta.get("val")),
        module=_module_path(stack[-1]) if stack else "",
        line=_source_line(node.meta.get("stack_trace") or ""),
        leaves=tuple(_left_modules(node, stack)),
    )


def _op_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        namespace, _, _ = target.name().partition("::")
        if namespace == "widthwise":
            return f"aten.{target._schema.name.partition('::')[2]}.input"
        return f"{namespace}.{target.__name__}"
    module = sys.modules.get(getattr(target, "__module__", ""))
    name = getattr(target, "__name__", str(target))
    return f"operator.{name}" if getattr(operator, name, None) is target else f"{module}.{name}"


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
    return path.removeprefix(_OUTER).removeprefix(".") if path.startswith(_OUTER) else ""


def _left_modules(node: fx.Node, stack: list[str]) -> Iterator[str]:
    """Yield the modules that a node's value leaves: it is used where they are no longer on the stack."""
    for path in stack:
        for user in node.users:
            around = [p for p, _ in (user.meta.get("nn_module_stack") or {}).values()]
            if path.startswith(_OUTER) and path not in around:
                yield _module_path(path)
                break


def _source_line(trace: str) -> str:
    """Return the innermost frame outside torch of a node's stack trace."""
    places = [line.split('"')[1:] for line in trace.splitlines() if line.strip().startswith('File "')]
    users = [(file, rest) for file, rest in places if not file.startswith(_TORCH) and file != __file__]
    if not users:
        return ""
    file, rest = users[-1]
    return f"{file}:{rest.split(',')[1].split()[1]}"


def _merge(training: Program, evaluation: Program) -> Program:
    """Return one program for both modes: constants that differ become a choice by the training flag."""
    pairs = list(zip(training.steps, evaluation.steps, strict=False))
    for one, other in pairs:
        if one.op != other.op or references([one.args, one.kwargs]) != references([other.args, other.kwargs]):
            raise _differs(one)
    if len(training.steps) != len(evaluation.steps) or training.output != evaluation.output:
        longer = max(training.steps, evaluation.steps, key=len)
        raise _differs(longer[len(pairs)] if len(longer) > len(pairs) else longer[-1])
    steps = []
    for one, other in pairs:
        args, kwargs = _choose((one.args, one.kwargs), (other.args, other.kwargs), one)
        steps.append(Step(one.name, one.op, args, kwargs, one.shape, one.module, one.line, one.leaves))
    return Program(training.inputs, tuple(steps), training.output, training.constants)


def _choose(one: Any, other: Any, step: Step) -> Any:
    if isinstance(one, dict):
        return {key: _choose(value, other[key], step) for key, value in one.items()}
    if type(one) in (list, tuple):
        if len(one) != len(other):
            raise _differs(step)
        return type(one)(_choose(a, b, step) for a, b in zip(one, other, strict=True))
    if type(one) is type(other) and one == other:
        return one
    if isinstance(one, (bool, float)) and isinstance(other, (bool, float)):
        return Mode(one, other)
    raise _differs(step)


def _differs(step: Step) -> TraceError:
    place = f" (module {step.module!r})" if step.module else ""
    return TraceError(
        f"{step.op} at {step.line or 'an unknown line'}{place} runs in one of training and evaluation only, but "
        "a slice has one list of operations for both. Replace the branch on self.training by a module that "
        "knows both modes, such as Dropout or BatchNorm."
    )
