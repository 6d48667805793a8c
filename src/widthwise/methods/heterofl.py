"""HeteroFL: each client trains the leading slice that its capacity allows, always the same.

Source: E. Diao, J. Ding, V. Tarokh, "HeteroFL: Computation and Communication Efficient Federated Learning
for Heterogeneous Clients", ICLR 2021, section 3.

Departures: a coordinate's update is the mean weighted by sample counts, as in arXiv 2608.07157, Algorithm 1
(``weighting: clients`` gives HeteroFL's own mean over client counts). HeteroFL's scaler, its masked
cross-entropy and its static batch norm are left out; batch norm follows the project's own stated rule.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

HETEROFL = Composition(policy="capacity")
