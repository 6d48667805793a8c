"""Whether a reloaded file gives what the sub-model gives, on real samples."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from widthwise.core.errors import ExportError
from widthwise.core.protocols import Samples

#: Batches that a file is tried on.
BATCH_SIZES = (1, 2, 7, 32)
#: How far scores may be apart, times the largest score where that is above 1.
TOLERANCE = 1e-5


@torch.no_grad()
def compare(what: str, found: Callable[[Tensor], Tensor], expected: nn.Module, samples: Samples) -> float:
    """Return the largest difference between scores of a file and of a sub-model, on ``BATCH_SIZES`` samples.

        |found - expected| <= 1e-5 * max(1, |expected|)    (largest |.| of the batch)

    Where that fails, the sub-model's own rounding error in the batch is added to the right, that is how far
    its scores are from those in double precision: what is known no better cannot be met more closely.

    Args:
        what: What is tried, for the message.
        found: Inputs [B, ...] -> scores [B, classes], as the file gives them.
        expected: The sub-model, in evaluation mode.
        samples: At least one; they are used again where there are fewer than a batch.

    Raises:
        ExportError: if they differ by more.
    """
    worst, first = 0.0, 0
    for size in BATCH_SIZES:
        inputs, _ = samples.batch(torch.arange(first, first + size) % len(samples))
        first += size
        right, got = expected(inputs), found(inputs)
        if got.shape != right.shape:
            raise ExportError(
                f"{what} gives scores of shape {list(got.shape)} for a batch of {size}, but the sub-model "
                f"gives {list(right.shape)}. Choose another --format."
            )
        apart = (got.double() - right.double()).abs().nan_to_num(nan=float("inf"))
        difference, allowed = float(apart.max()), TOLERANCE * max(1.0, float(right.abs().max()))
        if difference > allowed:
            allowed += rounding(expected, inputs, right)
        if difference > allowed:
            row, column = divmod(int(apart.argmax()), right.shape[1])
            raise ExportError(
                f"{what} gives {float(got[row, column]):.9g} as score of class {column} for sample {row} of "
                f"a batch of {size}, but the sub-model gives {float(right[row, column]):.9g}, and they may "
                f"be {allowed:.1e} apart. Choose another --format."
            )
        worst = max(worst, difference)
    return worst


def rounding(module: nn.Module, inputs: Tensor, scores: Tensor) -> float:
    """Return how far a module's scores are from those in double precision; 0 where it insists on single.

    Args:
        module: The module.
        inputs: [B, ...]
        scores: [B, classes], what it gives for them.
    """
    exact = copy.deepcopy(module).double()
    try:
        precise = exact(inputs.double() if inputs.is_floating_point() else inputs)
    except RuntimeError:
        return 0.0
    return float((precise - scores.double()).abs().max())
