"""Capture a model's forward pass in training and in evaluation mode."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
import traceback
import warnings
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from widthwise.core.errors import TraceError
from widthwise.slicing.calling import (
    EXTREMES,
    call_with,
    chance,
    draw_next,
    named_tensors,
    set_mode,
    undisturbed,
)
from widthwise.slicing.ir import BATCH, Made, Program, Ref, Shape, Step, Tensor, input_name, references
from widthwise.slicing.recorder import Recorder, TooLong, is_users, recording

#: Where torch keeps its layers.
_LAYERS = Path(nn.modules.__file__).parent


@dataclass(frozen=True)
class Example:
    """Example inputs by the names of the forward's arguments.

    Attributes:
        positional: How many of them are passed by position.
        tensors: Name -> tensor, in the order of the call.
    """

    positional: int
    tensors: dict[str, torch.Tensor]

    def split(self, tensors: Mapping[str, torch.Tensor]) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
        """Return other values of the inputs as positional and keyword arguments."""
        names = list(self.tensors)
        return (
            tuple(tensors[name] for name in names[: self.positional]),
            {name: tensors[name] for name in names[self.positional :]},
        )


def example_of(model: nn.Module, example_inputs: Any) -> Example:
    """Check example inputs and name them as the forward does.

    Raises:
        TraceError: if they are not tensors with the batch first, or the forward takes no such arguments.
    """
    by_name = dict(example_inputs) if isinstance(example_inputs, Mapping) else {}
    given: Any = example_inputs if isinstance(example_inputs, tuple | list) else (example_inputs,)
    values = list(by_name.values()) if isinstance(example_inputs, Mapping) else list(given)
    dense = all(isinstance(x, torch.Tensor) and x.layout is torch.strided and not x.is_nested for x in values)
    if not values or not dense or values[0].ndim == 0:
        kinds = ", ".join(type(x).__name__ for x in values) or "empty"
        raise TraceError(
            f"example_inputs is {kinds}, but it must be a tensor, a tuple of tensors or a dictionary of "
            "tensors by argument name, with the batch first. Pass what the forward takes, for example "
            "torch.zeros(2, 3, 32, 32)."
        )
    if by_name:
        return Example(0, by_name)
    try:
        bound = inspect.signature(model.forward).bind(*values).arguments
    except TypeError as error:
        raise TraceError(
            f"example_inputs has {len(values)} tensors, but the forward of {type(model).__name__} does not "
            f"take them ({error}). Pass what the forward takes."
        ) from error
    names: list[str] = []
    for name, value in bound.items():
        names += [name] if isinstance(value, torch.Tensor) else [f"{name}_{i}" for i in range(len(value))]
    return Example(len(values), dict(zip(names, values, strict=True)))


def capture(model: nn.Module, example: Example) -> tuple[tuple[Program, ...], dict[str, Shape]]:
    """Return the model's programs in training and in evaluation mode, and the shapes of its inputs.

    There is one program where both modes run the same operations. The model is left as it was.

    Raises:
        TraceError: if the forward cannot be followed for every input.
    """
    programs = [_in_mode(model, example, training=training) for training in (True, False)]
    shapes = {
        input_name(name): tuple(BATCH if axis == 0 else n for axis, n in enumerate(x.shape))
        for name, x in example.tensors.items()
    }
    return tuple(programs[:1] if programs[0] == programs[1] else programs), shapes


def _in_mode(model: nn.Module, example: Example, *, training: bool) -> Program:
    with undisturbed(model):
        set_mode(model, training=training)
        before = chance()
        program = _record(model, example)
        drawn = chance() != before
    for extreme in EXTREMES if drawn else ():
        with undisturbed(model):
            set_mode(model, training=training)
            draw_next(extreme)
            again = _record(model, example)
        if again != program:
            raise TraceError(
                f"the forward of {type(model).__name__} draws random numbers from Python or numpy, but a "
                "slice must run the same operations every time. Switch it off (layer dropout, stochastic "
                "depth), or multiply by a mask that torch draws."
            )
    return program


def tensors_of(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the model's parameters and buffers, and for each tied name the name that stands for it."""
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[int, str] = {}
    persistent = set(model.state_dict(keep_vars=True))
    for parameter, name, value in named_tensors(model):
        first = seen.setdefault(id(value), name)
        if first != name:
            aliases[name] = first
            continue
        tensors[name] = Tensor(
            name, tuple(value.shape), value.dtype, parameter, value.requires_grad, name in persistent
        )
    return tensors, aliases


def _record(model: nn.Module, example: Example) -> Program:
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    own: dict[str, torch.Tensor] = {}
    seen: dict[int, torch.Tensor] = {}
    for _, name, value in named_tensors(model):
        if id(value) not in seen:
            seen[id(value)] = own[name] = fake.from_tensor(value, static_shapes=True)
    with fake:
        inputs = {
            name: torch.empty((BATCH, *x.shape[1:]) if x.ndim else (), dtype=x.dtype, device=x.device)
            for name, x in example.tensors.items()
        }
    floats = (value.dtype for value in model.parameters() if value.is_floating_point())
    dtype = next(floats, torch.get_default_dtype())
    devices = sorted({x.device.index or 0 for x in example.tensors.values() if x.is_cuda})
    modules = {name: module for name, module in model.named_modules() if name}
    args, kwargs = example.split(inputs)
    try:
        with (
            torch.random.fork_rng(devices),
            torch.enable_grad(),
            warnings.catch_warnings(),
            _quiet(),
            recording(
                {**{input_name(name): x for name, x in inputs.items()}, **own}, dtype, fake
            ) as recorder,
            recorder.inside(modules),
        ):
            warnings.simplefilter("ignore")
            returned = call_with(model, own, args, kwargs)
        output = _output(returned, recorder, model)
        constants = {name: value.detach().clone() for name, value in recorder.constants.items()}
    except TraceError:
        raise
    except Exception as error:
        raise _explained(error, model, own_failure(model, example)) from error
    counters = {name for name, value in own.items() if value.ndim == 0 and not value.is_floating_point()}
    steps = _without_idle(recorder.steps, output, counters)
    return Program(tuple(map(input_name, example.tensors)), steps, output, constants)


def _without_idle(steps: list[Step], output: Any, counters: set[str]) -> tuple[Step, ...]:
    """Leave out the counting of batches that nothing reads: a sub-model leaves it to its owner."""
    uses = Counter(references([output, *([step.args, step.kwargs] for step in steps)]))
    return tuple(
        step
        for step in steps
        if not (
            step.op.startswith("aten.add_.")
            and isinstance(counted := step.args[0], Ref)
            and counted.name in counters
            and uses[counted.name] == 1
            and not uses[step.name]
        )
    )


def _output(value: Any, recorder: Recorder, model: nn.Module) -> Any:
    """Translate what the forward returns: tensors in containers. Of fields, what is none is left out."""
    if isinstance(value, float) and value and value % BATCH == 0:
        raise TraceError(
            f"the forward of {type(model).__name__} returns a number computed from the batch size, but "
            "batches of clients differ in size. Return the batch size itself, or a tensor."
        )
    if value is None or isinstance(value, (bool, int, float, str, torch.Tensor)):
        return recorder.argument(value)
    if type(value) in (dict, OrderedDict):
        return {key: _output(item, recorder, model) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_output(item, recorder, model) for item in value)
    fields = _fields(value)
    if fields is None:
        raise TraceError(
            f"the forward of {type(model).__name__} returns an object of class {type(value).__name__}, but "
            "only tensors in tuples, lists, dictionaries and dataclasses can be followed. Switch it off (for "
            "example use_cache=False in the configuration of a transformer) or wrap the model."
        )
    known = {key: item if _followed(item) else None for key, item in fields.items()}
    return Made(type(value), {key: _output(item, recorder, model) for key, item in known.items()})


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a container of the model's own class, or None if it is none."""
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    return None


def _followed(value: Any) -> bool:
    """Return whether a field can be followed: not a cache of keys and values, which only generation uses."""
    plain = value is None or isinstance(value, (bool, int, float, str, torch.Tensor, list, tuple))
    return plain or _fields(value) is not None


def leaves_of(output: Any) -> list[torch.Tensor]:
    """Return the tensors of what a model or a sub-model returns, whatever containers they are in."""
    if isinstance(output, torch.Tensor):
        return [output]
    if type(output) in (list, tuple):
        return [leaf for item in output for leaf in leaves_of(item)]
    return [leaf for item in (_fields(output) or {}).values() for leaf in leaves_of(item)]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch, which logs and prints, while a failing forward becomes one message of ours."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        logger.setLevel(level)


def own_failure(model: nn.Module, example: Example) -> Exception | None:
    """Return what the model itself raises on the example inputs, if it does."""
    values = {name: value.detach().clone() for _, name, value in named_tensors(model)}
    args, kwargs = example.split({name: value.clone() for name, value in example.tensors.items()})
    try:
        with undisturbed(model), torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call_with(model, values, args, kwargs)
    except Exception as error:
        return error
    return None


def own_error(model: nn.Module, error: Exception) -> TraceError:
    """Return the message for a model that does not run itself."""
    return TraceError(
        f"the forward of {type(model).__name__} fails on the example inputs at {_user_frame(error)} "
        f"({_brief(error)}), but it must run before it can be traced. Give it inputs that it takes."
    )


def _explained(error: Exception, model: nn.Module, own: Exception | None) -> TraceError:
    """Turn a failed forward into a message that names the place in the user's code and the remedy."""
    if own is not None:
        return own_error(model, own)
    name, where = type(model).__name__, _user_frame(error)
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        return TraceError(
            f"the forward of {name} is data-dependent at {where}, but a slice must run the same operations "
            "for every input. Replace the branch or number that is read from a tensor by tensor "
            "operations (torch.where); a transformer layer of torch that looks at its mask takes is_causal."
        )
    numbers = map(int, re.findall(r"\d+", str(error)))
    if isinstance(error, TooLong) or any(number and number % BATCH == 0 for number in numbers):
        return TraceError(
            f"the forward of {name} depends on the batch size at {where}, but batches of clients differ in "
            "size. Take it from x.shape[0] (not from a number), and do not branch on it or loop over it."
        )
    return TraceError(
        f"the forward of {name} is not traceable at {where} ({_brief(error)}), but its operations must be "
        "known before it runs. Keep to operations on tensors."
    )


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _user_frame(error: Exception) -> str:
    """Return the last line that the error passed in the user's code, or else in a layer of torch."""
    frames = traceback.extract_tb(error.__traceback__)
    layers = [f for f in frames if Path(f.filename).parent == _LAYERS and f.name != "_call_impl"]
    places = [frame for frame in frames if is_users(frame.filename)] or layers
    return f"{places[-1].filename}:{places[-1].lineno}" if places else "an unknown line"
