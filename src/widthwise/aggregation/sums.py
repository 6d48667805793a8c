"""Weighted sums of float32 updates in float64, at the speed of memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice, takewhile

import torch
from torch import Tensor

from widthwise.core.params import Params
from widthwise.core.threads import one_thread

BLOCK = 65_536
"""Coordinates summed in one step. With fewer, calls cost more than sums; more do not stay in the caches."""


class WeightedSum:
    """Sums whole updates: ``sum_i w_i delta_i`` for each parameter.

    Widening an update and adding it to a sum in memory moves seven times its bytes. Here a block of each of a
    few updates is widened into a buffer that stays in the caches, and one product of matrix and vector sums
    them. Both buffers are made once: fresh memory costs more than the sum.

    Args:
        most: How many updates there are at most.
        size: How many coordinates an update has at most.
    """

    def __init__(self, most: int, size: int) -> None:
        self._block = min(BLOCK, max(size, 1))
        self._wide = torch.empty(most, self._block, dtype=torch.float64)
        self._sum = torch.empty(size, dtype=torch.float64)

    def __call__(self, updates: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> Params:
        """Return the sums by name, in the order of the first update. The next call overwrites them.

        Args:
            updates: Tensors of the same names and shapes, at least one update.
            weights: w_i, one for each update.

        Example:
            >>> updates = [{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 4.0])}]
            >>> WeightedSum(most=2, size=2)(updates, [1.0, 10.0])["w"].tolist()
            [31.0, 42.0]
        """
        shapes = {name: value.shape for name, value in updates[0].items()}
        pieces = [[p for n in shapes for p in torch.split(u[n].reshape(-1), self._block)] for u in updates]
        factors = torch.tensor(weights, dtype=torch.float64)
        rows = self._wide[: len(updates)]
        done = 0
        with one_thread():  # the library that multiplies may split a sum over threads
            for first, last, sizes in self._blocks([len(piece) for piece in pieces[0]]):
                width = sum(sizes)
                into = [part for row in rows[:, :width].unbind() for part in torch.split(row, sizes)]
                torch._foreach_copy_(into, [piece for update in pieces for piece in update[first:last]])
                torch.mv(rows[:, :width].t(), factors, out=self._sum[done : done + width])
                done += width
        parts = torch.split(self._sum[:done], [shape.numel() for shape in shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}

    def _blocks(self, sizes: Sequence[int]) -> Iterator[tuple[int, int, list[int]]]:
        """Yield (first piece, one after the last, sizes) of runs of pieces that fit into a block."""
        first = 0
        while first < len(sizes):
            totals = accumulate(islice(sizes, first, None))
            last = first + sum(1 for _ in takewhile(lambda total: total <= self._block, totals))
            yield first, last, list(sizes[first:last])
            first = last
