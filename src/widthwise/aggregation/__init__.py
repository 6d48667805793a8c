"""Aggregation: coordinate-wise weighted means and the rule for coordinates that nobody trained."""

from widthwise.aggregation.coordinates import UNCOVERED, CoordinateMean, aggregate, server_step

__all__ = ["UNCOVERED", "CoordinateMean", "aggregate", "server_step"]
