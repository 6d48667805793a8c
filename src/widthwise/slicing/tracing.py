"""From a module to its width space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch
from torch import nn

from widthwise.core.errors import TraceError
from widthwise.slicing.capture import capture, example_of, tensors_of
from widthwise.slicing.check import self_check
from widthwise.slicing.label import label
from widthwise.slicing.program import Forward
from widthwise.slicing.space import ParamLayout, WidthSpace


def trace(
    model: nn.Module,
    example_inputs: torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor],
    freeze: str | Iterable[str] = (),
    *,
    heads: Literal["whole", "inside"] = "whole",
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
        heads: What is cut where an axis is regrouped into blocks, as attention does with its heads: ``whole``
            blocks (of h heads a sub-model of width w has the leading ceil(w h)), or the leading channels
            ``inside`` each block (all heads, ceil(w e) of the e dimensions of each). Scores keep the
            full model's scale.
        check: Whether sub-models are run and compared with the model after tracing (see ``check``).

    Returns:
        The width space.

    Raises:
        TraceError: if an operation is not understood, the forward depends on data, or a frozen name is
            unknown.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> space = trace(model, torch.zeros(2, 4))
        >>> space.groups, space.num_params(space.nested(0.5))
        ((ChannelGroup(name='0', size=8),), 30)
    """
    if not isinstance(model, nn.Module):
        raise TraceError(
            f"model is of type {type(model).__name__}, but only a torch.nn.Module has parameters to slice. "
            "Wrap it in one."
        )
    freeze = (freeze,) if isinstance(freeze, str) else tuple(freeze)
    example = example_of(model, example_inputs)
    programs, shapes = capture(model, example)
    tensors, aliases = tensors_of(model)
    modules = [name for name, _ in model.named_modules() if name]
    found = label(programs, tensors, shapes, freeze, modules, inside=heads == "inside")
    layouts = {name: ParamLayout(tensor, found.layouts[name]) for name, tensor in tensors.items()}
    space = WidthSpace(
        Forward(found.programs, list(tensors.values())),
        found.groups,
        layouts,
        aliases,
        found.macs,
        tuple(name for name in found.output_tensors if tensors[name].parameter),
        freeze,
    )
    if check:
        self_check(model, space, example)
    return space
