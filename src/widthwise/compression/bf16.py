"""Half the bytes: the upper sixteen bits of each value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from widthwise.compression.compression import Compression, Layout
from widthwise.core.params import Params
from widthwise.core.seeds import SeedTree


class Bf16(Compression):
    """Each value is rounded to the nearest bfloat16, ties to even: 2 bytes a value.

        |C(x) - x| <= 2^-8 |x|      for each value in the range of bfloat16's normal numbers

    Deterministic, and so biased: by at most that share of each value, whose sign it keeps.

    The bits travel as int16, since NumPy knows no bfloat16.

    Source: bfloat16 as torch implements it. Departs: no.
    """

    kind: Literal["bf16"] = "bf16"

    def layout(self, count: int) -> Layout:
        """Return the one piece: n numbers of 16 bits."""
        return {"bits": (torch.int16, count)}

    def encode(self, values: Tensor, seeds: SeedTree) -> Params:
        """Return the rounded values; nothing is drawn."""
        return {"bits": values.to(torch.bfloat16).view(torch.int16)}

    def decode(self, pieces: Mapping[str, Tensor], count: int) -> Tensor:
        """Return the rounded values."""
        return pieces["bits"].view(torch.bfloat16).float()
