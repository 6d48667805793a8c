"""Training under an unstructured mask: which weights count, and what their gradient is."""

from __future__ import annotations

import torch
from torch import Tensor


def effective(weight: Tensor, kept: Tensor, threshold: float) -> Tensor:
    """Return the weights that a client under a mask computes with, differentiable by FIARSE's rule.

        y = w * a,    dy/dw = a * (1 + 2 theta |w| / (|w| + theta)^2),    a = 1[kept and |w| >= theta]

    The second term is the surrogate slope of the mask itself: 1.5 in all for a weight at the threshold,
    falling to 1 far above it. A weight that falls below the threshold counts as zero from then on and gets no
    gradient from the loss; momentum and weight decay still move it, so that it may come back.

    Source: Wu et al. 2024 (FIARSE), arXiv 2407.19389 (threshold-controlled biased gradient
    descent), with the slope of its released code. Departs: a weight outside the mask that the server made
    stays out, also where the threshold is 0.

    Args:
        weight: A parameter of the full module, zero outside the mask when training starts.
        kept: Its mask.
        threshold: theta >= 0, infinite where nothing is kept.

    Example:
        >>> w = torch.tensor([1.0, 0.4, 3.0], requires_grad=True)
        >>> y = effective(w, torch.tensor([True, True, False]), 0.5)
        >>> y.sum().backward()
        >>> y.tolist(), [round(g, 4) for g in w.grad.tolist()]
        ([1.0, 0.0, 0.0], [1.4444, 0.0, 0.0])
    """
    size = weight.detach().abs()
    active = kept & (size >= threshold)
    slope = torch.where(active, 1 + 2 * threshold * size / (size + threshold).square(), 1.0)
    # A weight of 0 at a threshold of 0 has no slope of its own: 0 / 0.
    slope = slope.nan_to_num(1.0)
    value = weight.detach()
    return torch.where(active, value + slope * (weight - value), 0.0)
