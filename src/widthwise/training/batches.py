"""In which order and in which batches a client sees its samples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def epoch_batches(indices: Tensor, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield the indices of one epoch, shuffled, in batches; every sample exactly once.

    Args:
        indices: [n] positions of the client's samples, n >= 1.
        batch_size: Samples per batch.
        generator: Source of the shuffle.

    Example:
        >>> batches = epoch_batches(torch.arange(5), 2, torch.Generator().manual_seed(0))
        >>> [len(batch) for batch in batches]
        [2, 3]
    """
    order = torch.randperm(len(indices), generator=generator)
    yield from torch.split(indices[order], batch_sizes(len(indices), batch_size))


def batch_sizes(samples: int, batch_size: int) -> list[int]:
    """Return how many samples each batch of an epoch holds.

    The last batch holds what is left over, except that a single left-over sample joins the batch before
    it: statistics over a batch of one value do not exist, and one rule for all models keeps the number of
    steps independent of the kind of normalisation. A client with a single sample trains on a batch of one,
    where a batch norm over one value per channel passes on its bias and no gradient.

    Example:
        >>> batch_sizes(9, 4), batch_sizes(10, 4), batch_sizes(1, 4)
        ([4, 5], [4, 4, 2], [1])
    """
    full, left = divmod(samples, batch_size)
    if left == 1 and full and batch_size > 1:
        return [batch_size] * (full - 1) + [batch_size + 1]
    return [batch_size] * full + [left] * (left > 0)
