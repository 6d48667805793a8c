"""Weighted sums of float32 updates in float64, at the speed of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, islice, takewhile

import torch
from torch import Tensor

from widthwise.core.params import Params
from widthwise.core.recycled import Block, fresh, tensor_in
from widthwise.core.threads import one_thread

BUFFER = 2**20
"""Coordinates that are widened in one step, of all updates together: 8 MiB, which stay in the caches."""


class WeightedSum:
    """Sums whole updates: ``sum_i w_i delta_i`` for each parameter.

    Widening an update and adding it to a sum in memory moves seven times its bytes. Here a block of each of a
    few updates is widened into a buffer that stays in the caches, and one product of matrix and vector sums
    them. Both buffers are made once: fresh memory costs more than the sum.

    Args:
        size: How many coordinates an update has at most.
        memory: Gives the memory of both.
    """

    def __init__(self, size: int, memory: Callable[[int], Block] = fresh) -> None:
        self._wide = tensor_in(memory, BUFFER, torch.float64)
        self._sum = tensor_in(memory, size, torch.float64)
        # Making a view takes as long as widening some thousand coordinates.
        self._places = lru_cache(maxsize=64)(partial(_places, self._wide))

    def __call__(self, updates: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> Params:
        """Return the sums by name, in the order of the first update. The next call overwrites them.

        Args:
            updates: Tensors of the same names and shapes, at least one update.
            weights: w_i, one for each update.

        Example:
            >>> updates = [{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 4.0])}]
            >>> WeightedSum(size=2)(updates, [1.0, 10.0])["w"].tolist()
            [31.0, 42.0]
        """
        shapes = {name: value.shape for name, value in updates[0].items()}
        most = BUFFER // len(updates)
        pieces = [list(_pieces([update[name] for name in shapes], most)) for update in updates]
        factors = torch.tensor(weights, dtype=torch.float64)
        done = 0
        with one_thread():  # the library that multiplies may split a sum over threads
            for first, last in _blocks([piece.numel() for piece in pieces[0]], most):
                block, into = self._places(len(updates), *[piece.shape for piece in pieces[0][first:last]])
                torch._foreach_copy_(into, [piece for update in pieces for piece in update[first:last]])
                torch.mv(block.t(), factors, out=self._sum[done : done + block.shape[1]])
                done += block.shape[1]
        parts = torch.split(self._sum[:done], [shape.numel() for shape in shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def _places(wide: Tensor, count: int, *shapes: torch.Size) -> tuple[Tensor, list[Tensor]]:
    """Return [count, coordinates] the part that pieces of these shapes fill, and where each piece goes."""
    most = len(wide) // count
    sizes = [shape.numel() for shape in shapes]
    part = wide[: most * count].view(count, most)[:, : sum(sizes)]
    cut = [zip(torch.split(row, sizes), shapes, strict=True) for row in part.unbind()]
    return part, [place.view(shape) for row in cut for place, shape in row]


def _pieces(values: Iterable[Tensor], most: int) -> Iterator[Tensor]:
    """Yield tensors of at most ``most`` elements as they are, and others in flat pieces."""
    for value in values:
        if value.numel() <= most:
            yield value
        else:
            yield from torch.split(value.reshape(-1), most)


def _blocks(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield (first piece, one after the last) of runs of pieces that fit into a block."""
    first = 0
    while first < len(sizes):
        totals = accumulate(islice(sizes, first, None))
        last = first + sum(1 for _ in takewhile(lambda total: total <= most, totals))
        yield first, last
        first = last
