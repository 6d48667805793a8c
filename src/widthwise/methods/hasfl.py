"""HAS-FL: widths follow a smoothed estimate of each client's update divergence.

Source: A. Moayedikia, A. Troncoso Lora, "Capacity Confounds and Coverage Guarantees in Adaptive Sub-model
Federated Learning", arXiv 2608.07157, Algorithm 1 and equations 4 to 6.

Every ``adapt_every`` rounds after ``warmup`` the width of each client becomes
``min(capacity, p_min + gamma * H_i / mean(H))``; with ``guarantee: true`` the clients of the largest capacity
keep all of it, so that no coordinate which somebody can train is left out. ``estimator: restricted``
measures the divergence on the coordinates that a client trained, ``common-core`` on those that the whole
cohort trained.

Departures: none known. What the paper leaves open (the small number in the denominators, batch size,
normalisation layers) is an option with a documented default.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

HASFL = Composition(policy="adaptive")
