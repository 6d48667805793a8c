"""Calls of a user's model that leave it, and the random numbers of its process, as they were.

numpy's old global generator is meant here: it is what models draw from.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Put every attribute of every module back afterwards: modes, caches, what lists and dictionaries hold.

    A forward may remember things (positions for the last length, the weights of a recurrent layer). While a
    model is traced these are tensors without values, which must not stay in it.
    """
    attributes = {module: dict(vars(module)) for module in model.modules()}
    contents = [
        (value, copy.copy(value))
        for own in attributes.values()
        for value in own.values()
        if isinstance(value, dict | list | set)
    ]
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        for module, own in attributes.items():
            vars(module).clear()
            vars(module).update(own)
        for value, held in contents:
            value.clear()
            (value.extend if isinstance(value, list) else value.update)(held)


def chance() -> tuple[Any, ...]:
    """Return where the random numbers of Python and numpy stand."""
    numpy: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), numpy[1].tobytes(), numpy[2]


EXTREMES = (0.001, 0.999)
"""Below the one and above the other: a branch on such a draw goes both ways."""


def draw_next(extreme: float) -> None:
    """Seed Python and numpy so that the next number in [0, 1) is below .001, or above .999."""

    def found(value: float) -> bool:
        return value < extreme if extreme < 0.5 else value > extreme

    random.seed(next(seed for seed in count() if found(random.Random(seed).random())))
    np.random.seed(next(seed for seed in count() if found(np.random.RandomState(seed).rand())))  # noqa: NPY002


def set_mode(model: nn.Module, *, training: bool) -> None:
    """Put a model into a mode. A model that is in training keeps modules that are not: those are frozen."""
    if not (training and model.training):
        model.train(training)


def call_with(model: nn.Module, values: dict[str, torch.Tensor], args: Any, kwargs: Any) -> Any:
    """Call a model with other values for its tensors. Buffers that the forward replaces, it replaces there.

    A tensor's value stands under the first of its names. Every module is given its tensors once:
    ``torch.func.functional_call`` by itself would leave the new ones in a module that has several paths.
    """
    first = {id(value): name for _, name, value in reversed(list(named_tensors(model)))}
    places = {place: first[id(value)] for place, value in placed_tensors(model).items()}
    own = {place: values[name] for place, name in places.items() if name in values}
    returned = functional_call(model, own, args, kwargs, tie_weights=False)
    values.update({place: value for place, value in own.items() if place in values})
    return returned


def placed_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name, those of each module once, tied ones in every module.

    In one walk over the modules: ``named_parameters`` and ``named_buffers`` take one each.
    """
    return {
        f"{path}.{key}" if path else key: value
        for path, module in model.named_modules()
        for held in (module._parameters, module._buffers)
        for key, value in held.items()
        if value is not None
    }


def named_tensors(model: nn.Module) -> Iterator[tuple[bool, str, torch.Tensor]]:
    """Yield (whether it is a parameter, name, tensor) of parameters and buffers, under all their names."""
    yield from ((True, *named) for named in model.named_parameters(remove_duplicate=False))
    yield from ((False, *named) for named in model.named_buffers(remove_duplicate=False))
