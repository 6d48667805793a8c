"""From a module to its width space."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from widthwise.core.errors import TraceError
from widthwise.slicing.capture import capture, tensors_of
from widthwise.slicing.label import check_freeze, label
from widthwise.slicing.space import ParamLayout, WidthSpace


def trace(
    model: nn.Module, example_inputs: torch.Tensor | tuple[torch.Tensor, ...], freeze: Iterable[str] = ()
) -> WidthSpace:
    """Derive the channel groups of a model by following its forward pass once.

    The forward is exported in training and in evaluation mode; each axis of each tensor is labelled by the
    channels that it carries (see ``axes``). The axes of inputs and outputs, vocabularies and kernels are
    never cut. The model is left as it was.

    Args:
        model: Any module whose forward takes tensors by position.
        example_inputs: One tensor or a tuple of tensors, batch first. The batch may vary, other sizes not.
        freeze: Paths of modules (as in ``named_modules``) whose output channels stay whole: an embedding's
            width, an LSTM's hidden units, a convolution's output channels.

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
    inputs = tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)
    if not inputs or not all(isinstance(x, torch.Tensor) for x in inputs) or inputs[0].ndim == 0:
        kinds = ", ".join(type(x).__name__ for x in inputs) or "empty"
        raise TraceError(
            f"example_inputs is {kinds}, but it must be a tensor or a tuple of tensors with the batch first. "
            "Pass what the forward takes, for example torch.zeros(2, 3, 32, 32)."
        )
    freeze = (freeze,) if isinstance(freeze, str) else tuple(freeze)
    program, shapes = capture(model, inputs)
    tensors, aliases = tensors_of(model)
    check_freeze(freeze, [name for name, _ in model.named_modules() if name], program.steps)
    found = label(program, tensors, shapes, freeze)
    layouts = {name: ParamLayout(tensor, found.layouts[name]) for name, tensor in tensors.items()}
    return WidthSpace(
        found.program,
        found.groups,
        layouts,
        aliases,
        found.macs,
        tuple(name for name in found.output_tensors if tensors[name].parameter),
        freeze,
    )
