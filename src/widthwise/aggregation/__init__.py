"""Aggregation: coordinate-wise weighted means and the rule for coordinates that nobody trained."""

from widthwise.aggregation.coordinates import UNCOVERED, CoordinateMean, aggregate, server_step
from widthwise.aggregation.sums import WeightedSum

__all__ = ["UNCOVERED", "CoordinateMean", "WeightedSum", "aggregate", "server_step"]
