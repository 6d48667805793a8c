"""The models that commands look at: from the registry, or from the user's own code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from widthwise.core.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

#: Where the shapes come from on which a model is looked at unless --task says another.
SMALL_MODELS = ("cnn-small", "mlp")

MODEL_HELP = (
    "A registered model, module:factory with --task or --shape, or module:function -> (model, inputs)."
)


def model_and_inputs(
    model: str, task: str | None, norm: str | None, shapes: list[str] | None = None, dtype: str = "float32"
) -> tuple[nn.Module, Any, tuple[str, ...]]:
    """Return a module, its example inputs and what it freezes itself.

    Raises:
        InputError: if the model is unknown or does not take such data.
    """
    from widthwise.tasks import DATASETS, resolve_model

    if shapes and (task is not None or ":" not in model):
        raise ConfigError(
            f"--shape is {shapes[0]!r}, but {model!r} takes the shapes of a data set, which --task names. "
            "Leave --shape out."
        )
    if ":" in model and task is None:
        if norm is not None:
            raise ConfigError(
                f"--norm is {norm!r}, but {model!r} is called without options. Leave --norm out, or name a "
                "data set with --task."
            )
        made = (_made(model), _examples(shapes, dtype)) if shapes else _pair(model)
        return *made, ()
    signature = DATASETS[task or _usual_task(model)].value.signature
    spec = resolve_model(model, signature, {"norm": norm} if norm else {})
    return spec.build(0), spec.example_inputs(), spec.freeze


def _usual_task(model: str) -> str:
    from widthwise.tasks import MODELS

    if "image" not in MODELS[model].value.kinds:
        return "shakespeare"
    return "digits" if model in SMALL_MODELS else "cifar10"


def _pair(target: str) -> tuple[Any, Any]:
    made = _made(target)
    if not isinstance(made, tuple) or len(made) != 2:
        raise ConfigError(
            f"model is {target!r}, but it gives a {type(made).__name__} and says nothing of inputs. Let it "
            "return (model, example_inputs), or name their shapes with --shape, or a data set with --task."
        )
    return made


def _made(target: str) -> Any:
    from widthwise.tasks.custom import load_factory

    factory = load_factory(target)
    try:
        return factory()
    except Exception as error:  # it is the user's code
        raise ConfigError(
            f"model is {target!r}, but that gives no model ({type(error).__name__}: {error}). "
            "Let it return (model, example_inputs), or name the data set whose shapes it takes with --task."
        ) from error


def _examples(shapes: list[str], dtype: str) -> tuple[Any, ...]:
    """Return two samples of each shape: zeros, or of integers 0 and 1 by turns.

    Tokens must differ, or a check sees little of the model; 0 and 1 are in every vocabulary.
    """
    import torch

    try:
        kind = getattr(torch, dtype)
        zeros = [torch.zeros(2, *(int(part) for part in s.split(",") if part), dtype=kind) for s in shapes]
        if kind.is_floating_point or kind.is_complex:
            return tuple(zeros)
        return tuple((torch.arange(x.numel()) % 2).to(kind).view(x.shape) for x in zeros)
    except (ValueError, RuntimeError, AttributeError, TypeError):
        raise typer.BadParameter(
            f"--shape {' '.join(shapes)} with --dtype {dtype} is no tensor. Write sizes without the batch, "
            "such as 3,32,32, and a dtype of torch such as float32 or int64."
        ) from None
