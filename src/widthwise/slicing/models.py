"""What no sub-model could take over from a model."""

from __future__ import annotations

from keyword import iskeyword

import torch
from torch import nn

from widthwise.core.errors import TraceError


def check_model(model: nn.Module) -> None:
    """Refuse models that are compiled or wrapped, have hooks on gradients, or parameters that are no numbers.

    Raises:
        TraceError: naming the module or parameter.
    """
    if isinstance(model, nn.DataParallel) or hasattr(model, "_orig_mod"):
        inner = "module" if isinstance(model, nn.DataParallel) else "_orig_mod"
        raise TraceError(
            f"the model is wrapped in {type(model).__name__}, but what is inside is traced. "
            f"Pass model.{inner}."
        )
    for path, module in model.named_modules():
        place = f"module {path!r}" if path else "the model"
        if iskeyword(path.rpartition(".")[2]):
            raise TraceError(
                f"{place} is named as a word of Python's grammar, but forwards of sub-models are written as "
                "code. Give it another name."
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise TraceError(
                f"{place} is compiled by torch.jit, but operations are read as they run. Pass the module "
                "that it was made from."
            )
        if module._backward_hooks or module._backward_pre_hooks:
            raise TraceError(
                f"{place} has a hook on its backward pass, but sub-models have none. "
                "Remove it before tracing."
            )
    for name, parameter in model.named_parameters():
        _check_parameter(name, parameter)


def _check_parameter(name: str, parameter: nn.Parameter) -> None:
    if isinstance(parameter, nn.parameter.UninitializedParameter):
        raise TraceError(
            f"the parameter {name!r} has no shape yet, but shapes are what is traced. "
            "Call the model once before."
        )
    if parameter.is_complex():
        raise TraceError(
            f"the parameter {name!r} is complex, but updates are averaged as real numbers. Keep its real and "
            "imaginary parts as one parameter (torch.view_as_complex in the forward)."
        )
    if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
        raise TraceError(
            f"the parameter {name!r} has a hook on its gradient, but sub-models have none. Remove it before "
            "tracing; requires_grad_(False) keeps a parameter as it is."
        )
