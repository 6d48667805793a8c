"""A program interpreted with everything in it neutralised that depends on how many channels are kept.

Steps that have a statistic over channels (``Step.mixes``) are replaced by a part for which slice and masked
model agree: a norm by its scale and shift, anything else by ones. Nothing is dropped or drawn at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

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
    Step,
    transform,
)
from widthwise.slicing.layout import kept_positions
from widthwise.slicing.program import function_of
from widthwise.slicing.rules.base import schema_of
from widthwise.slicing.rules.elementwise import DROPOUT, RANDOM


def run(
    program: Program,
    tensors: Mapping[str, Tensor],
    inputs: Mapping[str, Tensor],
    counts: Mapping[str, int],
    kept: Mapping[str, Sequence[int]] | None = None,
) -> Any:
    """Interpret a program, steps that mix channels replaced by their neutral parts.

    With ``kept``, operands over whose channels a step sums are zero outside the kept ones.
    """
    values: dict[str, Any] = {**program.constants, **tensors}
    values.update(zip(program.inputs, inputs.values(), strict=True))
    first = values[program.inputs[0]]
    dtype = next((t.dtype for t in tensors.values() if t.is_floating_point()), torch.get_default_dtype())

    def bind(leaf: Any) -> Any:
        match leaf:
            case Ref(name):
                return values[name]
            case Size() | GroupCount():
                size = leaf.at(counts)
                return size // BATCH * first.shape[0] if size % BATCH == 0 else size
            case BatchSize(times):
                return times * first.shape[0]
            case InputDevice():
                return first.device
            case ModelDtype():
                return dtype
            case Made(kind, fields):
                return kind(**fields)
            case _:
                return leaf

    for step in program.steps:
        args, kwargs = transform(_calm(step), bind)
        if kept is not None:
            args = list(args)
            for position, dim, layout in step.sums:
                args[position] = _only(args[position], dim, kept_positions(layout, counts, kept))
        if _kind(step) == "native_dropout":
            value = args[0], torch.ones_like(args[0], dtype=torch.bool)
        elif _kind(step) in DROPOUT:  # not run: it may write into what it is given
            value = args[0]
        else:
            value = function_of(step.op)(*args, **kwargs)
            if step.mixes or _kind(step) in RANDOM:
                value = _neutral(step, args, value)
        values[step.name] = value
    return transform(program.output, bind)


def _calm(step: Step) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a step, so that it drops nothing at random and knows the statistics of batches.

    Those of a batch of two are ill conditioned: they would make of a rounding error a sign.
    """
    args, kwargs = list(step.args), dict(step.kwargs)
    if step.op.startswith("aten."):
        names = [argument.name for argument in schema_of(step.op).arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        calm: dict[str, Any] = {"dropout": 0.0, "dropout_p": 0.0}
        if given.get("running_mean") is not None:
            calm |= {"training": False, "use_input_stats": False}
        for name in calm.keys() & given.keys():
            if name in kwargs:
                kwargs[name] = calm[name]
            else:
                args[names.index(name)] = calm[name]
    return args, kwargs


def _kind(step: Step) -> str:
    return step.op.split(".")[1].removesuffix("_")


def _only(x: Any, dim: int, positions: Sequence[int]) -> Any:
    kept = torch.zeros(x.shape[dim], dtype=torch.bool, device=x.device)
    kept[list(positions)] = True
    return x.masked_fill(~kept.reshape(-1, *[1] * (-dim - 1)), 0.0)


def _neutral(step: Step, args: Sequence[Any], value: Any) -> Any:
    kind = _kind(step)
    if kind not in ("group_norm", "layer_norm", "rms_norm"):
        return pytree.tree_map(torch.ones_like, value)
    x, _, *affine = args
    scale, shift = (*affine, None, None)[:2]
    if kind == "group_norm":  # its channels are axis 1, those of the others the last axes
        scale, shift = (v if v is None else v.reshape(-1, *[1] * (x.ndim - 2)) for v in (scale, shift))
    x = x if scale is None else x * scale
    return x if shift is None or kind == "rms_norm" else x + shift
