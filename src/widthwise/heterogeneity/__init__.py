"""Heterogeneity of clients: estimated from their updates, and the truth of a partition's labels."""

from __future__ import annotations

from widthwise.core.registry import Registry
from widthwise.heterogeneity.common_core import CommonCore, intersection
from widthwise.heterogeneity.estimator import Estimates, Estimator
from widthwise.heterogeneity.label_divergence import label_divergence
from widthwise.heterogeneity.restricted import Restricted

ESTIMATORS = Registry[type[Estimator]]("estimator")
ESTIMATORS.add(
    "restricted",
    Restricted,
    summary="divergence on the coordinates that the client trained",
    source="arXiv 2608.07157, eq. 4",
)
ESTIMATORS.add(
    "common-core",
    CommonCore,
    summary="divergence on the coordinates that the whole cohort trained",
    source="arXiv 2608.07157, section 3.2",
)

__all__ = ["ESTIMATORS", "Estimates", "Estimator", "intersection", "label_divergence"]
