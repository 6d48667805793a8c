"""Where channels go: one small rule for each operation. A new operation needs one more function here."""

from widthwise.slicing.axes import concat, fixed_axis, free_axis, pin
from widthwise.slicing.rules import (
    dense,
    elementwise,
    indexing,
    norm,
    ordered,
    pieces,
    products,
    recurrent,
    reduce,
    shape,
    spatial,
)
from widthwise.slicing.rules.base import RULES, Call, Labels, Result, rule, rule_of

__all__ = [
    "RULES",
    "Call",
    "Labels",
    "Result",
    "concat",
    "dense",
    "elementwise",
    "fixed_axis",
    "free_axis",
    "indexing",
    "norm",
    "ordered",
    "pieces",
    "pin",
    "products",
    "recurrent",
    "reduce",
    "rule",
    "rule_of",
    "shape",
    "spatial",
]
