"""Channel selectors: which channels a sub-model of a given width keeps."""

from widthwise.core.registry import Registry
from widthwise.slicing.selectors.importance import Importance
from widthwise.slicing.selectors.magnitude import Magnitude
from widthwise.slicing.selectors.nested import Nested
from widthwise.slicing.selectors.random_aligned import RandomAligned
from widthwise.slicing.selectors.rolling import Rolling
from widthwise.slicing.selectors.selector import Moment, Selector

SELECTORS: Registry[type[Selector]] = Registry("selector")
SELECTORS.add(
    "nested",
    Nested,
    summary="keep the leading channels of each group, so that narrower sub-models lie inside wider ones",
    source="Diao et al. 2021 (HeteroFL); Horvath et al. 2021 (FjORD)",
)
SELECTORS.add(
    "rolling",
    Rolling,
    summary="a window of channels that moves each round and wraps around, the same for all clients",
    source="Alam et al. 2022 (FedRolex), section 3",
)
SELECTORS.add(
    "random-aligned",
    RandomAligned,
    summary="random channels, anew for each client and round; coupled axes are cut alike",
    source="Caldas et al. 2018 (Federated Dropout)",
)
SELECTORS.add(
    "importance",
    Importance,
    summary="the channels whose coupled weights have the largest norm in the current global model",
    source="Li et al. 2017; Fang et al. 2023 (DepGraph)",
)
SELECTORS.add(
    "magnitude",
    Magnitude,
    summary="masked compute: the single weights of largest magnitude, in the full module at full MACs",
    source="Wu et al. 2024 (FIARSE)",
)

__all__ = ["SELECTORS", "Moment", "Selector"]
