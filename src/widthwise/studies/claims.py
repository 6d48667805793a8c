"""A paper's claims as data: what is to be computed, and where it must lie for the claim to hold."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict

Quantity = Literal["best", "final", "peak_to_final", "width"]
"""Best and final test accuracy of the global model (%), final minus best (points), average width."""


class PaperData(BaseModel):
    """What is read from the file of a paper."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Region(PaperData):
    """The values that a claim allows: between ``low`` and ``high``, neither included."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        low, high = (f"{end:g}".replace("-", "−") for end in (self.low, self.high))
        if math.isinf(self.low):
            return f"< {high}"
        if math.isinf(self.high):
            return f"> {low}"
        return f"within ±{high}" if self.low == -self.high else f"{low} to {high}"


class Contrast(PaperData):
    """A quantity of one method, minus the mean of others in the same seed; without others, its level.

    Formula: c_s = q_s(of) - (1 / K) sum_k q_s(minus_k), for the seeds that all of them have finished.

    Attributes:
        quantity: What is compared.
        of: The method, by its name in ``Expected.methods``.
        minus: The others.
    """

    quantity: Quantity
    of: str
    minus: tuple[str, ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that must have been run."""
        return (self.of, *self.minus)


class Link(PaperData):
    """A correlation over the clients of a method's runs.

    Attributes:
        correlation: One of ``audit.table.COLUMNS``.
        of: The method.
    """

    correlation: str
    of: str

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that must have been run."""
        return (self.of,)


class Share(PaperData):
    """What a client of some width costs in % of one of width 1; counted, so it needs no run.

    Attributes:
        cost: What is counted.
        width: The client's width.
    """

    cost: Literal["params", "macs"]
    width: float


class Claim(PaperData):
    """A claim.

    Attributes:
        name: Short identity, grouped by the paper's conclusions.
        short: The claim in a few words.
        sentence: What is claimed.
        statistics: What decides, in points of accuracy, as a correlation or in %: one verdict for each.
        region: Where each must lie.
        tasks: The paper's tasks that it is about; for a ``Share``, the models of its cost table.
    """

    name: str
    short: str
    sentence: str
    statistics: tuple[Contrast | Link | Share, ...]
    region: Region
    tasks: tuple[str, ...]
