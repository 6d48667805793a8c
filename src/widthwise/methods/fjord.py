"""FjORD: ordered dropout over the tiers that fit a client, with distillation from its largest network.

Source: S. Horvath et al., "FjORD: Fair and Accurate Federated Learning under heterogeneous targets with
Ordered Dropout", NeurIPS 2021, section 3 and equation 1.

A participant draws one of the tiers up to its capacity, uniformly, anew each round; the student of that
width learns from the labels and from the client's own largest network.

Departures: the width is drawn once a round, as in arXiv 2608.07157, section 4.1. FjORD's own paper draws it
at every local step: ``{name: fjord, policy: capacity, draw: step}``. Updates are averaged per coordinate
over the clients that trained it, weighted by sample counts, not over rings of widths.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

FJORD = Composition(policy="tier-draw", objective="distillation")
