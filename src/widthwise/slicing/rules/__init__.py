"""What each operation does to the labels of its tensors: one small function per family of operations."""

from widthwise.slicing.rules import dense, elementwise, norm, recurrent, shape, spatial
from widthwise.slicing.rules.base import RULES, Call, Labels, rule

__all__ = ["RULES", "Call", "Labels", "dense", "elementwise", "norm", "recurrent", "rule", "shape", "spatial"]
