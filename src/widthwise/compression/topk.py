"""As few bytes as wanted: the largest values and where they are."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from widthwise.compression.compression import Compression, Layout
from widthwise.core.errors import SliceError
from widthwise.core.params import Params
from widthwise.core.seeds import SeedTree

SHORT = 2**16
"""So many positions fit into two bytes."""


class TopK(Compression):
    """The k = ceil(share * n) values of largest magnitude travel as they are; the others become 0.

        ||C(x) - x||^2 <= (1 - k / n) ||x||^2

    Biased, and deterministic: what is small beside the rest of its report does not travel. Nothing is kept
    back for a later round (*no error feedback*): that would be one more parameter dictionary for each client,
    and of a slice that differs from round to round. A client starts each round from the global model, so
    what was left out is found again while its gradient lasts; but coordinates that stay small beside the
    others are learned late or never, and the fixed point of training may move. Known cases diverge without
    feedback.

    Positions are a bitmap of n bits, or a number for each kept value (2 bytes up to 65,536 values,
    4 beyond), whichever is smaller.

    Source: Aji and Heafield 2017, arXiv 1704.05021, over the whole vector; the bound and the cases that
    diverge are in Beznosikov et al. 2020, arXiv 2002.12410. Departs: no error feedback.

    Attributes:
        share: Share of the values that travel.
    """

    kind: Literal["topk"] = "topk"
    share: float = Field(0.1, gt=0, le=1)

    def kept(self, count: int) -> int:
        """Return k: how many of n values travel, at least 1. Float noise adds none."""
        return max(1, ceil(round(self.share * count, 9)))

    def layout(self, count: int) -> Layout:
        """Return k values, and the positions in the smaller form."""
        k = self.kept(count)
        numbers = (torch.int16 if count <= SHORT else torch.int32, k)
        places: Layout = {"places": numbers}
        if ceil(count / 8) < numbers[0].itemsize * k:
            places = {"bitmap": (torch.uint8, ceil(count / 8))}
        return {"values": (torch.float32, k), **places}

    def encode(self, values: Tensor, seeds: SeedTree) -> Params:
        """Return the largest values in the order of their positions; nothing is drawn."""
        count = len(values)
        places = values.abs().topk(self.kept(count), sorted=False).indices.sort().values
        kept = {"values": values[places]}
        if "bitmap" in self.layout(count):
            held = torch.zeros(count, dtype=torch.bool)
            held[places] = True
            return {**kept, "bitmap": torch.from_numpy(np.packbits(held.numpy()))}
        return {**kept, "places": places.to(torch.int16 if count <= SHORT else torch.int32)}

    def decode(self, pieces: Mapping[str, Tensor], count: int) -> Tensor:
        """Return the values at their positions, 0 elsewhere.

        Raises:
            SliceError: if positions are not k different ones of n, in ascending order.
        """
        if "bitmap" in pieces:
            held = np.unpackbits(pieces["bitmap"].numpy(), count=count)
            places = torch.from_numpy(held.nonzero()[0])
        else:
            places = pieces["places"].long()
            if count <= SHORT:
                places = places % SHORT  # the upper half lies below 0 in 16 bits
        k = self.kept(count)
        if len(places) != k or int(places[0]) < 0 or int(places[-1]) >= count or not _ascending(places):
            raise SliceError(
                f"a compressed update names positions that are not {k} different ones of {count} in "
                "ascending order, but those of the largest values are. Compress the update with this version."
            )
        values = torch.zeros(count)
        values[places] = pieces["values"]
        return values


def _ascending(places: Tensor) -> bool:
    return bool((places[1:] > places[:-1]).all())
