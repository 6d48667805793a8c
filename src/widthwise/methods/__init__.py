"""Published methods, each a short composition of parts."""

from __future__ import annotations

from widthwise.methods.build import PARTS, build_method
from widthwise.methods.method import Composition, Method
from widthwise.methods.private import leaks
from widthwise.methods.problems import problems, unknown_key
from widthwise.methods.registry import METHODS

__all__ = ["METHODS", "PARTS", "Composition", "Method", "build_method", "leaks", "problems", "unknown_key"]
