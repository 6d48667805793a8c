"""The server's state between two rounds. A round makes a new one; nothing is changed in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from widthwise.allocation import PolicyState
from widthwise.core.params import Params, clone, zeros_like
from widthwise.engine.federation import Federation


@dataclass(frozen=True)
class ServerState:
    """All that the next round depends on (random streams are derived from seed and round).

    Attributes:
        round_index: The next round to run.
        params: Global parameters.
        buffers: The model's buffers as built. Clients train with batch statistics and report none, so
            running statistics never change here; they are re-estimated before each evaluation.
        policy: State of the allocation policy.
        estimates: Smoothed estimate of every client, [N] float64.
        measured: Whether an estimate was ever measured.
        server: The objective's parameter dictionaries on the server (SCAFFOLD's c), global shapes.
        clients: Client -> the round at whose end its own dictionaries (SCAFFOLD's c_i) were written, where
            the objective has any (``Disk``); a client that never took part is missing and stands for zeros.
        ever_covered: Which coordinates anybody has trained so far (bool, global shapes).
    """

    round_index: int
    params: Params
    buffers: Params
    policy: PolicyState
    estimates: np.ndarray
    measured: bool
    server: Mapping[str, Params]
    clients: Mapping[int, int]
    ever_covered: Params

    @classmethod
    def initial(cls, fed: Federation) -> ServerState:
        """Return the state before round 0."""
        model = fed.task.build_model(fed.seed)
        params = clone(dict(model.named_parameters()))
        return cls(
            round_index=0,
            params=params,
            buffers=clone(dict(model.named_buffers())),
            policy=fed.method.policy.init(fed.population),
            estimates=np.ones(len(fed.task.capacities)),
            measured=False,
            server={name: zeros_like(params) for name in fed.method.objective.server_state},
            clients={},
            ever_covered={name: torch.zeros(value.shape, dtype=torch.bool) for name, value in params.items()},
        )
