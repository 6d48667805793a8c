"""What a kind of compression is: a pure map from a vector of values to the tensors that travel, and back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from widthwise.core.errors import SliceError
from widthwise.core.params import Params
from widthwise.core.seeds import SeedTree

Layout = dict[str, tuple[torch.dtype, int]]
"""Piece -> its kind of number and how many of them. All kinds are known to NumPy too."""


class Compression(BaseModel):
    """Base of all kinds of compression. A kind has its options as fields, and works on one flat vector.

    What travels follows from the number of values alone (``layout``), so that a cost is known before anybody
    trains, and what a peer sends can be checked before it is read.

    Shapes: n values of one dictionary of a report.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def layout(self, count: int) -> Layout:
        """Return the pieces that n = ``count`` >= 1 values become."""

    @abstractmethod
    def encode(self, values: Tensor, seeds: SeedTree) -> Params:
        """Return the pieces of ``layout`` for [n] finite float32 values.

        Args:
            values: What is to be sent.
            seeds: Root of the random draws, where the kind makes any.
        """

    @abstractmethod
    def decode(self, pieces: Mapping[str, Tensor], count: int) -> Tensor:
        """Return [n] float32 the values that the pieces stand for.

        Args:
            pieces: As ``layout`` describes them.
            count: n.

        Raises:
            SliceError: if no values were encoded so.
        """

    def num_bytes(self, count: int) -> int:
        """Return the bytes of the pieces that n = ``count`` values become.

        Example:
            >>> from widthwise.compression import COMPRESSIONS
            >>> {entry.name: entry.value().num_bytes(1000) for entry in COMPRESSIONS}
            {'bf16': 2000, 'int8': 1016, 'topk': 525}
        """
        return sum(kind.itemsize * number for kind, number in self.layout(count).values())

    def check(self, pieces: Mapping[str, Tensor], count: int) -> None:
        """Refuse pieces that are not those of n = ``count`` values.

        Raises:
            SliceError: if a piece is missing, unknown, or has another kind or number of values.
        """
        found = {name: (piece.dtype, tuple(piece.shape)) for name, piece in pieces.items()}
        wanted = {name: (kind, (number,)) for name, (kind, number) in self.layout(count).items()}
        if found != wanted:
            raise SliceError(
                f"a compressed update has the pieces {found}, but {count} values become {wanted}. "
                "Compress the update of the slice that was assigned, as the server's configuration says."
            )
