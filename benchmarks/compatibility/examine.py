"""One line of the table: trace a model, cut it, train it, and look for what could be wrong in silence."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import widthwise as ww
from widthwise.core.errors import TraceError
from widthwise.core.params import clone, first_non_finite, load_, zeros_like
from widthwise.slicing.kernels import DrawnAlike

from .architecture import Architecture, Inputs
from .reorder import ordered_groups

WIDTHS = (0.25, 0.5, 0.75)
COHORT = {0.25: 3, 0.75: 5}  # width: number of examples
RATE = 0.01


@dataclass(frozen=True)
class Row:
    """What was found out about an architecture. What was not reached is None.

    Attributes:
        result: ``works``; ``whole`` if it does, but no channel can be cut; ``refused`` by a ``TraceError``;
            ``crashed`` with another error; or ``wrong``.
        reason: Why it does not work.
        parameters: Numbers in the full model, tied ones counted once.
        seconds: CPU time of ``trace``, its self-check included.
        shares: Share of the parameters in the sub-models of ``WIDTHS``.
        ordered: Number of groups whose channels have an order, all of them in models with a group norm.
        inside: The result with ``heads="inside"``: ``same`` if it cuts each parameter in the same way.
    """

    name: str
    family: str
    result: Literal["works", "whole", "refused", "crashed", "wrong"]
    reason: str = ""
    parameters: int | None = None
    groups: int | None = None
    seconds: float | None = None
    shares: tuple[float, ...] | None = None
    ordered: int | None = None
    inside: str | None = None


class Wrong(Exception):
    """Something does not hold that must."""


def examine(architecture: Architecture, seed: int = 0) -> Row:
    """Return what is found out about an architecture. Never raises for what the model or the tracer does."""
    name, family = architecture.name, architecture.family
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")  # of the models, which warn about configurations of this size
        try:
            model, inputs = architecture.build(seed)
            return _examine(name, family, model, inputs)
        except Wrong as error:
            return Row(name, family, "wrong", str(error))
        except TraceError as error:
            return Row(name, family, "refused", short(error))
        except Exception as error:
            return Row(name, family, "crashed", short(error))


def _examine(name: str, family: str, model: nn.Module, inputs: Inputs) -> Row:
    start = time.process_time()
    space = ww.trace(model, inputs)
    seconds = time.process_time() - start
    _check_full(model, space, inputs)
    for width in WIDTHS:
        _step(space.extract(model, space.nested(width)), inputs)
    _check_round(model, space, inputs)
    # By way of training: models drop there what they keep of their parameters for evaluation.
    ordered = ordered_groups(model, space, lambda changed: _leaves(_call(changed.train().eval(), inputs)))
    if ordered and not any(isinstance(module, nn.GroupNorm) for module in model.modules()):
        raise Wrong(f"the channels of {', '.join(ordered)} have an order")
    whole = space.num_params(space.full())
    return Row(
        name=name,
        family=family,
        result="works" if space.groups else "whole",
        reason="" if space.groups else "no channel can be cut",
        parameters=whole,
        groups=len(space.groups),
        seconds=round(seconds, 2),
        shares=tuple(round(space.num_params(space.nested(width)) / whole, 3) for width in WIDTHS),
        ordered=len(ordered),
        inside=_inside(model, space, inputs),
    )


def _check_full(model: nn.Module, space: ww.WidthSpace, inputs: Inputs) -> None:
    for training in (False, True):
        found = []
        for module in (space.extract(model, space.full()), space.extract(model, space.full()), model):
            buffers = clone(dict(module.named_buffers()))
            module.train(training)
            torch.manual_seed(1)  # for dropout
            with DrawnAlike():
                found.append(_leaves(_call(module, inputs)))
            load_(module, buffers)
            model.train()
        once, again, own = found
        for one, two, other in zip(once, again, own, strict=True):
            # Some kernels differ from call to call; what they do is no deviation.
            if not _equal(one, other) and _equal(one, two):
                mode = "training" if training else "evaluation"
                raise Wrong(f"the sub-model of full width differs from the model in {mode}")


def _check_round(model: nn.Module, space: ww.WidthSpace, inputs: Inputs) -> None:
    """Let two clients of different width train, and compare the new global model with a plain formula."""
    start = clone(dict(model.named_parameters()))
    total, weight, updates = zeros_like(start), zeros_like(start), []
    for width, examples in COHORT.items():
        spec = space.nested(width)
        client = space.extract(model, spec)
        received = clone(dict(client.named_parameters()))
        _step(client, inputs)
        delta = {name: value.detach() - received[name] for name, value in client.named_parameters()}
        if not any(bool(value.any()) for value in delta.values()):
            raise Wrong(f"no parameter of the sub-model of width {width} has a gradient")
        updates.append((spec, delta, examples))
        for name, mask in space.mask(spec).items():
            total[name][mask] += examples * delta[name].flatten()
            weight[name][mask] += examples
    params, covered = ww.aggregate(space, start, updates)
    for name, value in params.items():
        held = weight[name] > 0
        expected = start[name] + torch.where(held, total[name] / weight[name].clamp(min=1), 0.0)
        if not torch.equal(covered[name], held) or not torch.equal(value[~held], start[name][~held]):
            raise Wrong(f"{name} is covered where no client holds it, or the reverse")
        if not torch.allclose(value, expected, rtol=1e-5, atol=1e-7):
            raise Wrong(f"{name} is not the mean of the clients that hold it")
    if bad := first_non_finite(params):
        raise Wrong(f"{bad} is not finite after a round")


def _inside(model: nn.Module, space: ww.WidthSpace, inputs: Inputs) -> str:
    try:
        inside = ww.trace(model, inputs, heads="inside")
    except TraceError as error:
        return f"refused: {short(error)}"
    if inside.parameters == space.parameters:
        return "same"
    for width in WIDTHS:
        _step(inside.extract(model, inside.nested(width)), inputs)
    _check_round(model, inside, inputs)
    return "works"


def _step(module: nn.Module, inputs: Inputs) -> None:
    """Train a module for a step on the mean square of all its outputs."""
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    outputs = [leaf for leaf in _leaves(_call(module.train(), inputs)) if leaf.is_floating_point()]
    loss = torch.stack([leaf[leaf.isfinite()].square().mean() for leaf in outputs]).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    if bad := first_non_finite(dict(module.named_parameters())):
        raise Wrong(f"{bad} is not finite after a step")


def _call(module: nn.Module, inputs: Inputs) -> object:
    return module(**inputs) if isinstance(inputs, dict) else module(*inputs)


def _leaves(output: object) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())


def short(error: Exception) -> str:
    """Return what an error says is so, without what should be, and without paths of this machine."""
    what = str(error).partition(", but ")[0] or type(error).__name__
    what = what if isinstance(error, TraceError) else f"{type(error).__name__}: {what}"
    what = re.sub(r"/\S*/site-packages/", "", what.splitlines()[0])
    return what.replace(f"{Path(__file__).parents[2]}/", "")


def faults(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that must not be there."""
    return [row for row in rows if row.result in ("crashed", "wrong")]
