"""Random streams that never shift each other.

Every draw comes from a stream named by a path of purpose, round and client below one root seed. A new
client, another executor or a resumed run therefore changes no other stream, and a checkpoint needs to
store no generator state.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class SeedTree:
    """A root seed and a path below it.

    The seed of a path is the first 8 bytes of SHA-256 over the root and the path, so distinct paths give
    streams that are independent for all practical purposes, on every machine.

    Example:
        >>> tree = SeedTree(42)
        >>> tree.at("sampling", 3).seed() == SeedTree(42).at("sampling").at(3).seed()
        True
    """

    root: int
    path: str = ""

    def at(self, *steps: str | int) -> SeedTree:
        """Return the tree at a longer path, for example ``at("train", round_index, client)``."""
        # By its type, 1 is another step than "1". A list: two seeds are drawn for each client of a round.
        return SeedTree(
            self.root, self.path + "".join([f"/{type(step).__name__[0]}{step}" for step in steps])
        )

    def seed(self) -> int:
        """Return this path's seed, an integer in [0, 2**63)."""
        text = f"{int(self.root)}{self.path}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1

    def numpy(self) -> np.random.Generator:
        """Return a fresh NumPy generator for this path."""
        return np.random.default_rng(self.seed())

    def torch(self) -> torch.Generator:
        """Return a fresh CPU torch generator for this path."""
        import torch  # not above: it takes seconds to load, and an audit draws without it

        return torch.Generator().manual_seed(self.seed())
