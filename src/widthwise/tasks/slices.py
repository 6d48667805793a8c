"""How a model may be cut: the ``task.slices`` block of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Number = Annotated[int, Field(ge=1, strict=True)]


class SliceRules(BaseModel):
    """What ``trace`` is told about a model besides the model itself; ``widthwise trace`` shows the names.

    Attributes:
        freeze: Modules whose output channels stay whole, or channel groups, besides those that a registered
            model names itself.
        align: Kept channels are rounded up to a multiple of this; for each named group, or for all.
        floor: So many channels are kept at least; for each named group, or for all.
        heads: Whether attention is cut by ``whole`` heads or ``inside`` each head.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    freeze: tuple[str, ...] = ()
    align: Number | Mapping[str, Number] = 1
    floor: Number | Mapping[str, Number] = 1
    heads: Literal["whole", "inside"] = "whole"

    def options(self, freeze: tuple[str, ...]) -> dict[str, Any]:
        """Return the keyword arguments of ``trace``; ``freeze`` is what the model itself names."""
        return {
            "freeze": (*freeze, *self.freeze),
            "align": self.align,
            "floor": self.floor,
            "heads": self.heads,
        }
