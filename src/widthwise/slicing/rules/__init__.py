"""Where channels go: one small rule for each operation. A new operation needs one more function here."""

from widthwise.slicing.rules import dense, elementwise, norm, recurrent, shape, spatial
from widthwise.slicing.rules.base import RULES, Call, Labels, Result, rule, rule_of

__all__ = [
    "RULES",
    "Call",
    "Labels",
    "Result",
    "dense",
    "elementwise",
    "norm",
    "recurrent",
    "rule",
    "rule_of",
    "shape",
    "spatial",
]
