"""A step of plain SGD that a layer takes for its weight in the backward pass, without storing a gradient."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from torch import Tensor

_MARK = "widthwise.descent"


class Descent(NamedTuple):
    """What a step does: weight <- (1 - lr * weight_decay) * weight - lr * gradient."""

    lr: float
    weight_decay: float


@contextmanager
def descending(weights: Iterable[Tensor], descent: Descent) -> Iterator[None]:
    """Let layers that know how take this step for some weights, which then have no gradient.

    Only for weights that one operation reads, once: another would meet them changed in its backward pass.
    """
    marked = list(weights)
    for weight in marked:
        weight.__dict__[_MARK] = descent
    try:
        yield
    finally:
        for weight in marked:
            del weight.__dict__[_MARK]


def descent_of(weight: Tensor) -> Descent | None:
    """Return the step that a layer may take for a weight, if it may."""
    return weight.__dict__.get(_MARK)
