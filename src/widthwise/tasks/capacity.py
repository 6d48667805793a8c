"""Which width each client can train at most."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from widthwise.core.errors import ConfigError
from widthwise.core.seeds import SeedTree

Width = Annotated[float, Field(gt=0, le=1)]


class CapacityConfig(BaseModel):
    """Tiers with shares, or one width for each client.

    Attributes:
        tiers: Widths of the tiers.
        shares: Share of the clients in each tier; they sum to 1.
        list: One width for each client instead, in client order.

    The defaults are the paper's tiers with shares that give its mean capacity of 0.525 (it leaves the shares
    open).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tiers: tuple[Width, ...] = Field((0.25, 0.5, 0.75, 1.0), min_length=1)
    shares: tuple[Annotated[float, Field(ge=0, le=1)], ...] = (0.35, 0.35, 0.15, 0.15)
    list: Annotated[tuple[Width, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.list is not None:
            if self.model_fields_set & {"tiers", "shares"}:
                raise ValueError(
                    "list is set beside tiers or shares, but it replaces them. Remove one of the two."
                )
            return self
        if len(self.shares) != len(self.tiers):
            raise ValueError(
                f"shares has {len(self.shares)} entries, but tiers has {len(self.tiers)}. "
                "Give one share for each tier."
            )
        if len(set(self.tiers)) != len(self.tiers):
            raise ValueError(
                f"tiers is {list_text(self.tiers)}, but a width occurs twice. Add its shares up."
            )
        if abs(sum(self.shares) - 1) > 1e-6:
            raise ValueError(
                f"shares is {list_text(self.shares)} with sum {sum(self.shares):g}, but shares "
                "must sum to 1. Correct them."
            )
        return self

    def levels(self) -> tuple[float, ...]:
        """Return the widths that occur, ascending."""
        return tuple(sorted(set(self.tiers if self.list is None else self.list)))

    def draw(self, num_clients: int, seeds: SeedTree) -> npt.NDArray[np.float64]:
        """Return one capacity for each client, float64 [num_clients].

        Shares become whole numbers of clients by largest remainder, and only *who* gets which tier is random
        (``seeds.at("capacity")``): every seed then has the same mean capacity, where a multinomial draw would
        mix that in as noise.

        Raises:
            ConfigError: if ``list`` has another length than the number of clients.

        Example:
            >>> config = CapacityConfig(tiers=(0.25, 1.0), shares=(0.75, 0.25))
            >>> sorted(config.draw(4, SeedTree(42)).tolist())
            [0.25, 0.25, 0.25, 1.0]
        """
        if self.list is not None:
            if len(self.list) != num_clients:
                raise ConfigError(
                    f"capacity.list has {len(self.list)} entries, but clients is {num_clients}. "
                    "Give one width for each client."
                )
            return np.array(self.list)
        capacities = np.repeat(self.tiers, apportion(self.shares, num_clients))
        return seeds.at("capacity").numpy().permutation(capacities)


def apportion(shares: tuple[float, ...], total: int) -> npt.NDArray[np.int64]:
    """Return whole numbers that sum to ``total`` and follow ``shares``, by largest remainder.

    Example:
        >>> apportion((0.35, 0.35, 0.15, 0.15), 20).tolist()
        [7, 7, 3, 3]
    """
    # Rounded, so that 0.15 * 20 = 3.0000000000000004 or 2.9999999999999996 count as 3 with no remainder.
    exact = np.round(np.array(shares) * total, 9)
    counts = np.floor(exact).astype(np.int64)
    missing = total - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts


def list_text(values: tuple[float, ...]) -> str:
    """Return numbers as a user would write them in a list."""
    return "[" + ", ".join(f"{value:g}" for value in values) + "]"
