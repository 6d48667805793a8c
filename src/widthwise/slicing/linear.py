"""Linear layers whose weights take their step of plain SGD in the backward pass (``core.descent``).

With few rows, reading and writing the weights is what such a layer costs. The gradient would be written, read
again by the optimizer and, under autocast, cast before: here the product is added to the weights at once.

Legend: N rows of what a layer reads, I inputs, O outputs.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from widthwise.core.descent import Descent, descent_of
from widthwise.slicing.ir import Program, references

aten: Any = torch.ops.aten

#: Up to so many rows a product in float32 costs less than what the gradient in bfloat16 costs besides.
FLOAT_ROWS = 64

#: For so few rows, and from so many weights on, a product with the rows as columns is faster.
FEW_ROWS, MANY_WEIGHTS = range(8, 65), 2**20


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``aten.linear``; in the backward pass a weight that may takes its step (``descending``)."""
    made: Tensor
    descent = descent_of(weight)
    if descent is None or (dtype := _computed_in(input, weight, bias)) is None:
        made = aten.linear.default(input, weight, bias)
        return made
    *batch, inputs = input.shape
    rows = input.to(dtype).reshape(prod(batch), inputs)
    made = _Descending.apply(rows, weight, bias, descent)  # type: ignore[no-untyped-call]
    return made.view(*batch, len(weight))


def _computed_in(input: Tensor, weight: Tensor, bias: Tensor | None) -> torch.dtype | None:
    """Return the dtype of the product, or None where types are for torch to refuse, or to know better."""
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
    floats = all(one is None or one.dtype is torch.float32 for one in (weight, bias))
    return dtype if floats and input.dtype in (torch.float32, dtype) else None


def linear_weights(program: Program) -> frozenset[str]:
    """Return the tensors that a program reads once, as the weight of a linear layer."""
    read = Counter(references([[step.args, step.kwargs] for step in program.steps] + [program.output]))
    weights = {
        name
        for step in program.steps
        if step.op == "aten.linear.default" and not step.detached
        for name in references(step.args[1])
    }
    return frozenset(name for name in weights if read[name] == 1)


class _Descending(torch.autograd.Function):
    """``x @ weight.T + bias`` of x [N, I] in float32 or bfloat16, weight [O, I] and bias [O] in float32.

    Departs from torch's by rounding: the step is taken in one product, in float32 where that is no slower.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, descent: Descent) -> Tensor:
        """Return y [N, O]."""
        own, added = weight.to(x.dtype), bias if bias is None else bias.to(x.dtype)
        ctx.save_for_backward(x, own)
        ctx.weight, ctx.descent = weight, descent
        if len(x) not in FEW_ROWS or weight.numel() < MANY_WEIGHTS:
            y: Tensor = aten.linear.default(x, own, added)
            return y
        y = own @ x.t() if added is None else torch.addmm(added.unsqueeze(1), own, x.t())
        return y.t().clone(memory_format=torch.contiguous_format)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x and bias, and that of the weight where it has taken no step."""
        (x, own), (of_x, _, of_bias, _) = ctx.saved_tensors, ctx.needs_input_grad
        weight, (lr, decay) = ctx.weight, ctx.descent
        x_grad = grad @ own if of_x else None  # before the weights change
        weight_grad = None
        if x.dtype is weight.dtype or len(x) <= FLOAT_ROWS:
            weight.addmm_(grad.to(weight.dtype).t(), x.to(weight.dtype), beta=1 - lr * decay, alpha=-lr)
        else:
            weight_grad = (grad.t() @ x).to(weight.dtype)
        return x_grad, weight_grad, grad.sum(0, dtype=weight.dtype) if of_bias else None, None
