"""FedProx: full models, each held near the model that the client received.

Source: T. Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, equation 2.

Each client minimises ``f_i(w) + (mu / 2) * ||w - w_t||^2``. The default ``mu = 1.0`` is that of the study
of capacity confounds (arXiv 2608.07157, section 4.1); the authors of FedProx tune it over 0.001 .. 1.

Departures: every client takes all its local steps (no partial work). On a sub-model
(``policy: capacity``) the anchor is the client's slice of the received model.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

FEDPROX = Composition(policy="full", objective="proximal")
