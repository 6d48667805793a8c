"""Channel selectors: which channels a sub-model of a given width keeps."""

from widthwise.core.registry import Registry
from widthwise.slicing.selectors.nested import Selector, nested

SELECTORS: Registry[Selector] = Registry("selector")
SELECTORS.add(
    "nested",
    nested,
    summary="keep the leading channels of each group, so that narrower sub-models lie inside wider ones",
    source="Diao et al. 2021 (HeteroFL); Horvath et al. 2021 (FjORD)",
)

__all__ = ["SELECTORS", "Selector"]
