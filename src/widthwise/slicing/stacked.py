"""Operations of several clients' sub-models at once: what a forward of plain operations becomes in a stack.

``torch.func.vmap`` batches every operation, but at each call it costs more than the products of a small
perceptron. A forward of which each operation has a form here is written out without it.

Legend: K clients, B samples of each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from widthwise.slicing.ir import BatchSize, Program, Ref, Step, references
from widthwise.slicing.rules.base import find, schema_of
from widthwise.slicing.rules.elementwise import elementwise


class _Linear(torch.autograd.Function):
    """Batched ``x @ weight.mT + bias``, with gradients of the weights that lie as the weights do.

    Those that torch derives are transposed: they would be copied once more when they are stored.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        if bias is None:
            return torch.bmm(x, weight.mT)
        return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (x, weight) = grads, ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            torch.bmm(grad, weight) if of_x else None,
            torch.bmm(grad.mT, x) if of_weight else None,
            grad.sum(1) if of_bias else None,
        )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x @ weight.T + bias`` of each client.

    Args:
        x: [K, B, ..., in]
        weight: [K, out, in]
        bias: [K, out]
    """
    rows = x.flatten(1, -2)
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        rows, weight, bias = rows.to(dtype), weight.to(dtype), bias if bias is None else bias.to(dtype)
    made: Tensor = _Linear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return made.view(*x.shape[:-1], -1)


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Flatten axes that are counted without the clients'."""
    return x.flatten(start_dim + (start_dim >= 0), end_dim + (end_dim >= 0))


def reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return each client's part in a shape."""
    return x.reshape(len(x), *shape)


_FORMS: dict[str, Callable[..., Tensor]] = {
    "aten.linear.default": linear,
    "aten.flatten.using_ints": flatten,
    "aten.view.default": reshape,
    "aten.reshape.default": reshape,
}


def form_of(op: str) -> Callable[..., Tensor] | None:
    """Return the form of an operation, or None: one that works position by position is its own."""
    return _FORMS.get(op)


def has_forms(program: Program, parameters: Collection[str]) -> bool:
    """Return whether each step of a program has a form for several clients, and it returns class scores.

    Args:
        program: A forward that is ``samplewise``.
        parameters: Names of the tensors of which each client has its own.
    """
    ranks: dict[str, int | None] = dict.fromkeys(program.inputs)
    for step in program.steps:
        if step.detached or not isinstance(step.shape, tuple) or not _has_form(step, ranks, parameters):
            return False
        ranks[step.name] = len(step.shape)
    scores = program.output
    return len(program.inputs) == 1 and isinstance(scores, Ref) and ranks.get(scores.name) == 2


def _has_form(step: Step, ranks: dict[str, int | None], parameters: Collection[str]) -> bool:
    names = references([step.args, step.kwargs])
    values, others = [name for name in names if name in ranks], [name for name in names if name not in ranks]
    if step.op == "aten.linear.default":
        return values == names[:1] and all(name in parameters for name in others)
    if others:
        return False
    if _FORMS.get(step.op) is reshape:
        return bool(step.args[1]) and step.args[1][0] == BatchSize(1)
    if step.op in _FORMS:
        return True
    # Position by position: nothing may be broadcast along the axis of the clients.
    known = step.op.startswith("aten.") and find(schema_of(step.op).name) is elementwise
    return known and step.shape is not None and {ranks[name] for name in values} == {len(step.shape)}
