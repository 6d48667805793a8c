"""In which order and in which batches a client sees its samples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def epoch_batches(indices: Tensor, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield the indices of one epoch, shuffled, in batches; every sample exactly once.

    The last batch holds what is left over, except that a single left-over sample joins the batch before
    it: statistics over a batch of one value do not exist, and one rule for all models keeps the number of
    steps independent of the kind of normalisation. A client with a single sample trains on a batch of one,
    where a batch norm over one value per channel passes on its bias and no gradient.

    Args:
        indices: [n] positions of the client's samples, n >= 1.
        batch_size: Samples per batch.
        generator: Source of the shuffle.

    Example:
        >>> batches = epoch_batches(torch.arange(5), 2, torch.Generator().manual_seed(0))
        >>> [len(batch) for batch in batches]
        [2, 3]
    """
    shuffled = indices[torch.randperm(len(indices), generator=generator)]
    batches = list(torch.split(shuffled, batch_size))
    if batch_size > 1 and len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    yield from batches
