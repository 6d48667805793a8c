"""What parts may need of the slices that a channel selector makes."""

from __future__ import annotations

from enum import StrEnum


class Trait(StrEnum):
    """A property of slices. Selectors have traits, other parts need some; the text says it in a message."""

    DENSE = "sub-models that are smaller dense modules"
    LEADING = "slices of leading channels, which contain every narrower one"
    COMMON = "slices of a round that lie inside each other"
