"""FedRolex: each client trains a window of channels that its capacity allows; the window rolls each round.

Source: S. Alam et al., "FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model Extraction",
NeurIPS 2022, arXiv 2212.01548, section 3.

The window of a round starts at the same channel for all clients and moves forward by one channel, as in the
paper; the released code moves it backward (``roll_direction: backward``), which differs by a relabelling.
Every channel is trained, also where no client has the full width, but not every weight: windows of coupled
layers move together (``widthwise coverage`` shows what they never hold).

Departures: a coordinate's update is the mean weighted by sample counts (``weighting: clients`` for the
paper's own); no masked cross-entropy and no static batch norm. Tiers are evaluated on the leading channels.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

FEDROLEX = Composition(policy="capacity", selector="rolling")
