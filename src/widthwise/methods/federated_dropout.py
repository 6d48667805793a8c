"""Federated Dropout: each client trains channels drawn at random, as many as its capacity allows.

Source: S. Caldas et al., "Expanding the Reach of Federated Learning by Reducing Client Resource
Requirements", 2018, arXiv 1812.07210.

Channels are drawn anew for each client and round, once for all coupled axes.

Departures: widths follow capacities, as in FedRolex's comparison with it (the paper drops the same share for
everybody: ``policy: fixed``); without the paper's lossy compression. Tiers are evaluated on the leading
channels.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

FEDERATED_DROPOUT = Composition(policy="capacity", selector="random-aligned")
