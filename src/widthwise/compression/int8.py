"""A quarter of the bytes: eight bits for each value, rounded at random so that the mean is right."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from widthwise.compression.compression import Compression, Layout
from widthwise.core.params import Params
from widthwise.core.seeds import SeedTree

BLOCK = 256
"""Neighbouring values that share a scale: 4 bytes for them are 1.6 % more, and a large value
coarsens its block only."""

STEPS = 127


class Int8(Compression):
    """Each block of 256 values has 127 steps on either side of 0; a value goes to a neighbour at random.

        s = max |x| / 127  over the block,     q = floor(x / s + u),  u ~ U[0, 1),     C(x) = s q

    Unbiased: E[C(x)] = x, with variance s^2 f (1 - f) <= s^2 / 4, where f is the fractional part of x / s.
    (To the rounding of float32 in the product s q.) A value of 0 stays 0. The last block may be shorter.

    Source: Alistarh et al. 2017 (QSGD), arXiv 1610.02132, section 3.1, for the rounding at random. Departs:
    blocks are scaled by their largest value, not the vector by its norm; steps are not entropy coded.
    """

    kind: Literal["int8"] = "int8"

    def layout(self, count: int) -> Layout:
        """Return n steps and a scale for each block."""
        return {"steps": (torch.int8, count), "scales": (torch.float32, ceil(count / BLOCK))}

    def encode(self, values: Tensor, seeds: SeedTree) -> Params:
        """Return the randomly rounded steps and the scales."""
        blocks = pad(values.double(), (0, -len(values) % BLOCK)).view(-1, BLOCK)
        # The next number of float32 upwards: no value lies beyond its 127 steps, where it would be cut off.
        scales = (blocks.abs().amax(1) / STEPS).float().nextafter(torch.tensor(torch.inf))
        blocks /= scales.double()[:, None]
        blocks += torch.rand(blocks.shape, generator=seeds.torch(), dtype=torch.float64)
        return {"steps": blocks.floor_().to(torch.int8).view(-1)[: len(values)].clone(), "scales": scales}

    def decode(self, pieces: Mapping[str, Tensor], count: int) -> Tensor:
        """Return the steps times their scales."""
        return pieces["steps"] * pieces["scales"].repeat_interleave(BLOCK)[:count]
