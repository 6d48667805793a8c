"""Capture a model's forward pass: export it in training and in evaluation mode and merge the two graphs."""

from __future__ import annotations

import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export

from widthwise.core.errors import TraceError
from widthwise.slicing.graph import BATCH, is_users, read, schema_of
from widthwise.slicing.ir import Mode, Program, Shape, Step, Tensor
from widthwise.slicing.standins import StandIns

#: Where torch keeps its layers.
_LAYERS = Path(nn.modules.__file__).parent


class _Wrapper(nn.Module):
    """The model behind a forward of positional arguments, whatever its own signature is."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> Any:
        with StandIns():
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
            programs.append(read(_export(model, inputs), model))
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
    """Silence torch, which logs and prints, while a failing export becomes one message of ours."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with redirect_stderr(StringIO()):
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
            f"the forward of {name} is data-dependent at {where}, but a slice must run the same operations "
            "for every input. Replace the branch or number that is read from a tensor by tensor operations "
            "(torch.where)."
        )
    if "Constraints violated" in text or "marked batch as dynamic" in text or "specialized" in text:
        return TraceError(
            f"the forward of {name} depends on the batch size, but batches of clients differ in size. "
            "Take it from x.shape[0] (not from len(x) or a number), and do not branch on it."
        )
    return TraceError(
        f"the forward of {name} is not traceable at {where} ({text.splitlines()[0]}), but its operations "
        "must be known before it runs. Call the model on the example inputs to see whether they fit, and "
        "keep to operations that torch.export supports."
    )


def _user_frame(error: Exception) -> str:
    """Return the last line that the error passed in the user's code, or else in a layer of torch."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    layers = [f for f in frames if Path(f.filename).parent == _LAYERS and f.name != "_call_impl"]
    places = [frame for frame in frames if is_users(frame.filename)] or layers
    return f"{places[-1].filename}:{places[-1].lineno}" if places else "an unknown line"


def _merge(training: Program, evaluation: Program) -> Program:
    """Return one program for both modes: constants that differ become a choice by the training flag."""
    steps = []
    for one, other in zip_longest(training.steps, evaluation.steps):
        if one is None or other is None or one.op != other.op or one.shape != other.shape:
            raise _differs(one or other)
        pair = (one.args, one.kwargs), (other.args, other.kwargs)
        if len(one.args) != len(other.args) or one.kwargs.keys() != other.kwargs.keys():
            pair = (
                _written_out(one),
                _written_out(other),
            )  # a rate that is 0 in evaluation is not written there
        args, kwargs = _choose(*pair, one)
        steps.append(replace(one, args=args, kwargs=kwargs))
    same = all(
        torch.equal(one, other)
        for one, other in zip(training.constants.values(), evaluation.constants.values(), strict=True)
    )
    if training.output != evaluation.output or not same:
        raise _differs(steps[-1])
    return replace(training, steps=tuple(steps))


def _written_out(step: Step) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a step's arguments with the defaults of its schema."""
    schema = schema_of(step.op)
    open_ = [argument for argument in schema.arguments[len(step.args) :] if argument.name not in step.kwargs]
    positional = tuple(argument.default_value for argument in open_ if not argument.kwarg_only)
    named = {argument.name: argument.default_value for argument in open_ if argument.kwarg_only}
    return step.args + positional, {**named, **step.kwargs}


def _choose(one: Any, other: Any, step: Step) -> Any:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return {key: _choose(value, other[key], step) for key, value in one.items()}
    if type(one) in (list, tuple) and type(one) is type(other) and len(one) == len(other):
        return type(one)(_choose(a, b, step) for a, b in zip(one, other, strict=True))
    if type(one) is type(other) and one == other:
        return one
    if isinstance(one, (bool, float)) and isinstance(other, (bool, float)):
        return Mode(one, other)
    raise _differs(step)


def _differs(step: Step) -> TraceError:
    return TraceError(
        f"{step.place} differs between training and evaluation, but "
        "a slice has one list of operations for both. Replace the branch on self.training by a module that "
        "knows both modes, such as Dropout or BatchNorm."
    )
