"""Record the operations of a forward pass, as the user wrote them, on tensors without values.

A dispatch mode sees every ATen operation before torch takes it apart: a group norm or an LSTM is one
operation. Those that torch writes with others and that have no rule of their own (einsum, tile) are seen as
these. The tensors are fake (shapes and dtypes only) and the batch has the size ``BATCH``, so recording
costs about a millisecond an operation whatever the model's size.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from widthwise.core.errors import TraceError
from widthwise.slicing.ir import BATCH, BatchSize, InputDevice, ModelDtype, Ref, Shape, Step
from widthwise.slicing.rules.base import find

_INSIDE = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
_STEPS_MOST = 50_000
_STEP = "%"  # names of values: no parameter has one like this
_DIVIDING = {"aten::unbind", "aten::split", "aten::split_with_sizes", "aten::chunk", "aten::tensor_split"}
_COMPOSITE = "CompositeImplicitAutograd"  # operations that torch writes with others
_RECURRENT = {"aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"}


class TooLong(Exception):
    """The forward takes the batch apart or runs more operations than any model: it loops over the batch."""


def is_users(file: str) -> bool:
    """Whether a source file is the user's: neither torch's nor ours."""
    return not file.startswith(_INSIDE) and not file.startswith("<")


# Before torch takes operations apart there is room for three of its own modes only; the one that is made for
# eager runs, and not used there, gives its place.
class Recorder(SchemaCheckMode):
    """The operations of one forward pass, in order.

    Attributes:
        steps: The operations.
        constants: Tensors that the forward itself makes from numbers, by name.
    """

    def __init__(self, names: dict[str, Tensor], dtype: torch.dtype) -> None:
        """Start with the named inputs and model tensors; ``dtype`` is the model's own."""
        TorchDispatchMode.__init__(self, torch._C.DispatchKey.PreDispatch)  # type: ignore[no-untyped-call]
        self.steps: list[Step] = []
        self.constants: dict[str, Tensor] = {}
        self._dtype = dtype
        self._names = {id(value): name for name, value in names.items()}
        self._held: dict[int, list[tuple[str, Tensor]]] = {}  # by storage: the values that lie there
        self._parameters: dict[int, str] = {}
        for name, value in names.items():
            storage = value.untyped_storage()._cdata
            self._held.setdefault(storage, []).append((name, value))
            if isinstance(value, nn.Parameter):
                self._parameters[storage] = name
        self._alive: list[Any] = list(names.values())  # so that no id is given twice
        self._modules: list[str] = []
        self._grad = torch.is_grad_enabled()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if name.startswith(("aten::lift", "aten::_assert", "aten::_functional_assert")) or (
            name == "aten::detach_" and self._names.get(id(args[0])) in self.constants
        ):
            return self._lifted(func, args, kwargs)
        if name in _DIVIDING and args[0].shape[_dim(func, args, kwargs)] % BATCH == 0:
            raise TooLong
        if find(name) is None and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE):
            with self:  # without a rule of its own it is what it is made of
                return func.decompose(*args, **kwargs)
        recurrent = name in _RECURRENT and func._overloadname == "input"
        result = (_recurrent if recurrent else func)(*args, **kwargs)
        self._check_written(func, args, kwargs)
        self._record(f"{name.replace('::', '.')}.{func._overloadname}", args, kwargs, result)
        return result

    def argument(self, value: Any) -> Any:
        """Translate an argument or an output into plain data."""
        if isinstance(value, Tensor):
            return Ref(self._name(value))
        if isinstance(value, (list, tuple)):
            return [self.argument(item) for item in value]
        if isinstance(value, torch.device):
            return InputDevice()
        if type(value) is int and value and value % BATCH == 0:
            return BatchSize(value // BATCH)
        return value

    @contextmanager
    def inside(self, modules: dict[str, nn.Module]) -> Iterator[None]:
        """Follow which module runs, and which values it returns."""
        with ExitStack() as stack:
            for path, module in modules.items():
                enter = module.register_forward_pre_hook(partial(self._enter, path))
                leave = module.register_forward_hook(partial(self._leave, path), always_call=True)
                stack.callback(enter.remove)
                stack.callback(leave.remove)
            yield

    def _record(self, op: str, args: Any, kwargs: Any, result: Any) -> None:
        if len(self.steps) > _STEPS_MOST:
            raise TooLong
        tensors = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        named = {key: self.argument(value) for key, value in kwargs.items()}
        if not tensors and named.get("dtype") == self._dtype:
            named["dtype"] = ModelDtype()
        name = self._add(op, tuple(map(self.argument, args)), named, result)
        if isinstance(result, (list, tuple)):
            for index, item in enumerate(result):
                self._add("operator.getitem", (Ref(name), index), {}, item)

    def _add(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> str:
        name = f"{_STEP}{len(self.steps)}"
        detached = self._grad and not torch.is_grad_enabled() and isinstance(result, Tensor)
        module = self._modules[-1] if self._modules else ""
        self.steps.append(Step(name, op, args, kwargs, _shape(result), detached, module=module, line=_line()))
        if isinstance(result, Tensor):
            self._names[id(result)] = name
            self._held.setdefault(result.untyped_storage()._cdata, []).append((name, result))
            self._alive.append(result)
        return name

    def _lifted(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Note a tensor that is made from numbers: its values are the model's own constant."""
        result = func(*args, **kwargs)
        if isinstance(result, Tensor):
            self._names[id(result)] = self._name(args[0])
            self._alive.append(result)
        return result

    def _name(self, value: Tensor) -> str:
        if id(value) not in self._names:
            if isinstance(value, FakeTensor):
                return self._alias(value)
            name = f"<constant {len(self.constants)}>"  # no parameter has one like it
            self.constants[name] = value
            self._names[id(value)] = name
            self._alive.append(value)
        return self._names[id(value)]

    def _alias(self, value: Tensor) -> str:
        """Name a known value that torch handed on without an operation: as ``.data``, or from a factory."""
        held = self._held.get(value.untyped_storage()._cdata, [])
        found = next(((name, one) for name, one in reversed(held) if _view(one) == _view(value)), None)
        if found is None:
            raise TraceError(
                f"the forward uses a tensor of shape {list(value.shape)} at {_line()} that no operation "
                "made, but each value must be known. Use detach() instead of .data, and the views of torch."
            )
        name, one = found
        if one.requires_grad and not value.requires_grad:
            return self._add("aten.detach.default", (Ref(name),), {}, value)
        return name

    def _check_written(self, func: Any, args: Any, kwargs: Any) -> None:
        """Refuse a forward that writes into a parameter: it would change the very model that is traced."""
        arguments = func._schema.arguments
        given = {**dict(zip((one.name for one in arguments), args, strict=False)), **kwargs}
        written = [given.get(one.name) for one in arguments if one.is_write]
        for value in (value for value in pytree.tree_leaves(written) if isinstance(value, Tensor)):
            name = self._parameters.get(value.untyped_storage()._cdata)
            if name is not None:
                raise TraceError(
                    f"the forward writes into its parameter {name!r} by {func} at {_line()}, but only "
                    "training changes parameters. Write it after the optimizer's step, or make it a buffer."
                )

    def _enter(self, path: str, *_: Any) -> None:
        self._modules.append(path)

    def _leave(self, path: str, module: nn.Module, inputs: Any, output: Any) -> None:
        self._modules.pop()
        for value in pytree.tree_leaves(output):
            name = self._names.get(id(value), "")
            if name.startswith(_STEP):
                step = self.steps[int(name.removeprefix(_STEP))]
                self.steps[int(name.removeprefix(_STEP))] = replace(step, leaves=(*step.leaves, path))


@contextmanager
def recording(names: dict[str, Tensor], dtype: torch.dtype, fake: FakeTensorMode) -> Iterator[Recorder]:
    """Record everything that runs inside."""
    recorder = Recorder(names, dtype)
    fast_path = torch.backends.mha.get_fastpath_enabled()
    exporting = torch.compiler._is_exporting_flag, torch.compiler._is_compiling_flag
    torch.backends.mha.set_fastpath_enabled(False)  # an operation of its own that only evaluation uses
    # Libraries that look at values to save work (a mask that is all ones) leave that out when exported.
    torch.compiler._is_exporting_flag = torch.compiler._is_compiling_flag = True
    try:
        with fake, enable_python_dispatcher(), recorder:
            yield recorder
    finally:
        torch.compiler._is_exporting_flag, torch.compiler._is_compiling_flag = exporting
        torch.backends.mha.set_fastpath_enabled(fast_path)


def _dim(func: Any, args: Any, kwargs: Any) -> int:
    place = [argument.name for argument in func._schema.arguments].index("dim")
    return int(args[place] if place < len(args) else kwargs.get("dim", 0))


def _recurrent(input: Tensor, hx: Any, params: Any, *flags: Any) -> tuple[Tensor, ...]:
    """Return what a recurrent layer returns, without unrolling its time steps."""
    states = hx if isinstance(hx, (list, tuple)) else [hx]
    directions = 2 if flags[4] else 1  # has_biases, num_layers, dropout, train, bidirectional, batch_first
    output = input.new_empty(*input.shape[:-1], states[0].shape[-1] * directions)
    return output, *(state.clone() for state in states)


def _view(value: Tensor) -> tuple[Any, ...]:
    return value.dtype, value.shape, value.stride(), value.storage_offset()


def _shape(value: Any) -> Shape | list[Shape] | None:
    if isinstance(value, Tensor):
        return tuple(value.shape)
    if isinstance(value, (list, tuple)) and all(isinstance(item, Tensor) for item in value):
        return [tuple(item.shape) for item in value]
    return None


def _line() -> str:
    """Return the innermost line of the user's code, between this recorder and what called the forward."""
    frame: Any = sys._getframe(1)
    while frame.f_code.co_filename == __file__ or not frame.f_code.co_filename.startswith(_INSIDE[1]):
        if is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
