"""Plain local SGD."""

from __future__ import annotations

from widthwise.training.objective import Objective


class Plain(Objective):
    """Plain SGD on the criterion: min_w f_i(w) over the coordinates that the client received.

    Source: McMahan et al. 2017 (FedAvg), algorithm 1, ClientUpdate; Diao et al. 2021 (HeteroFL) for
    sub-models. Departs: no.
    """
