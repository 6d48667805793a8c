"""The leading channels."""

from __future__ import annotations

from widthwise.core.params import Params
from widthwise.core.records import SliceSpec
from widthwise.core.traits import Trait
from widthwise.slicing.selectors.selector import Moment, Selector
from widthwise.slicing.space import WidthSpace


class Nested(Selector):
    """The leading ceil(width * C) channels of each group, for every client and round alike.

    Source: Diao et al. 2021 (HeteroFL), section 3; Horvath et al. 2021 (FjORD), section 3. Departs: no.
    """

    @property
    def traits(self) -> frozenset[Trait]:
        """Dense, leading, with the narrowest slice as common core."""
        return frozenset(Trait)

    def select(self, space: WidthSpace, width: float, moment: Moment) -> SliceSpec:
        """Return the nested slice."""
        return space.nested(width)

    def reach(self, space: WidthSpace, width: float) -> Params:
        """Return the coordinates of the nested slice: it contains all narrower ones."""
        return space.mask(space.nested(width))
