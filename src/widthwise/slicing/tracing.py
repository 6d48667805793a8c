"""From a module to its width space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

import torch
from torch import nn

from widthwise.core.errors import TraceError, unknown_name
from widthwise.slicing.capture import capture, example_of, tensors_of
from widthwise.slicing.check import self_check
from widthwise.slicing.label import Labelled, label
from widthwise.slicing.models import check_model
from widthwise.slicing.program import Forward
from widthwise.slicing.samplewise import samplewise
from widthwise.slicing.space import ChannelGroup, ParamLayout, WidthSpace

Heads = Literal["whole", "inside"]


def trace(
    model: nn.Module,
    example_inputs: torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor],
    freeze: str | Iterable[str] = (),
    *,
    align: Mapping[str, int] | int = 1,
    floor: Mapping[str, int] | int = 1,
    heads: Heads = "whole",
    check: bool = True,
) -> WidthSpace:
    """Derive the channel groups of a model by following its forward pass once.

    The forward is recorded in training and in evaluation mode; each axis of each tensor is labelled by the
    channels that it carries (see ``axes``). The axes of inputs and outputs, vocabularies and kernels are
    never cut. The model is left as it was.

    Args:
        model: Any module whose forward takes tensors.
        example_inputs: One tensor, a tuple of tensors in the order of the forward's arguments, or a
            dictionary of tensors by their names; batch first. The batch may vary, other sizes not.
        freeze: Paths of modules (as in ``named_modules``) whose output channels stay whole (an embedding's
            width, an LSTM's hidden units, a convolution's output channels), or names of channel groups.
        align: Kept channels are rounded up to a multiple of this; for each named group, or for all.
        floor: So many channels are kept at least; for each named group, or for all.
        heads: What is cut where an axis is regrouped into blocks, as attention does with its heads: ``whole``
            blocks (of h heads a sub-model of width w has the leading ceil(w h)), or the leading channels
            ``inside`` each block (all heads, ceil(w e) of the e dimensions of each). Scores keep the
            full model's scale.
        check: Whether sub-models are run and compared with the model after tracing (see ``check``).

    Returns:
        The width space.

    Raises:
        TraceError: if an operation is not understood, the forward depends on data, a frozen name or a group
            is unknown, or the self-check finds a difference.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> space = trace(model, torch.zeros(2, 4))
        >>> space.groups, space.num_params(space.nested(0.5))
        ((ChannelGroup(name='0', size=8, align=1, floor=1),), 30)
    """
    if not isinstance(model, nn.Module):
        raise TraceError(
            f"model is of type {type(model).__name__}, but only a torch.nn.Module has parameters to slice. "
            "Wrap it in one."
        )
    if heads not in get_args(Heads):
        raise TraceError(f"heads is {heads!r}, but heads are cut as 'whole' or 'inside'. Choose one of them.")
    freeze = (freeze,) if isinstance(freeze, str) else tuple(freeze)
    check_model(model)
    example = example_of(model, example_inputs)
    programs, shapes = capture(model, example)
    tensors, aliases = tensors_of(model)
    modules = [name for name, _ in model.named_modules() if name]
    found = label(programs, tensors, shapes, freeze, modules, inside=heads == "inside")
    layouts = {name: ParamLayout(tensor, found.layouts[name]) for name, tensor in tensors.items()}
    space = WidthSpace(
        Forward(found.programs, list(tensors.values())),
        _groups(found, align, floor),
        layouts,
        aliases,
        found.macs,
        tuple(name for name in found.output_tensors if tensors[name].parameter),
        freeze,
        found.kept_whole,
        samplewise=samplewise(programs[0], shapes),
    )
    if check:
        self_check(model, space, example)
    return space


def _groups(
    found: Labelled, align: Mapping[str, int] | int, floor: Mapping[str, int] | int
) -> list[ChannelGroup]:
    for key, given in (("align", align), ("floor", floor)):
        for name, number in given.items() if isinstance(given, Mapping) else [(None, given)]:
            if name is not None and name not in found.groups:
                raise TraceError(unknown_name(key, name, found.groups))
            if type(number) is not int or number < 1:
                place = key if name is None else f"{key} of {name}"
                raise TraceError(
                    f"{place} is {number!r}, but it is a number of channels. Choose a whole number from 1."
                )
    return [
        ChannelGroup(name, size, _of(align, name), _of(floor, name), found.couplings[name])
        for name, size in found.groups.items()
    ]


def _of(given: Mapping[str, int] | int, name: str) -> int:
    return given.get(name, 1) if isinstance(given, Mapping) else given
