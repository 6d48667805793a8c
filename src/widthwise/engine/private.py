"""What a round releases under privacy."""

from __future__ import annotations

import numpy as np
import torch

from widthwise.core.params import Params
from widthwise.engine.federation import Federation
from widthwise.engine.round import select
from widthwise.engine.state import ServerState
from widthwise.privacy import noisy_mean
from widthwise.slicing import Moment


def released(fed: Federation, state: ServerState, total: Params) -> tuple[Params, Params]:
    """Return the noisy mean of a round and which coordinates it covers (``noisy_mean``).

    The noise comes from the round's own stream, so that a resumed run has the same; whoever knows the seed of
    the run can take it away.

    Args:
        fed: The federation, with privacy.
        state: State returned by ``plan_round``.
        total: The sum of the clipped updates, in global shapes.
    """
    assert fed.privacy is not None
    share = fed.training.cohort / fed.task.num_clients
    seeds = fed.seeds.at("noise", state.round_index)
    return noisy_mean(total, holders(fed, state), share, fed.privacy.noise, seeds)


def holders(fed: Federation, state: ServerState) -> Params:
    """Return how many of all clients hold each coordinate in this round, in global shapes.

    Args:
        fed: The federation; its slices follow from round and width alone.
        state: State returned by ``plan_round``, with the widths of all clients.
    """
    counts = {name: torch.zeros(v.shape, dtype=torch.float64) for name, v in state.params.items()}
    taking_part = state.policy.widths[state.policy.widths > 0]
    for width, number in zip(*np.unique(taking_part, return_counts=True), strict=True):
        spec = select(
            fed, float(width), Moment(0, state.round_index, fed.seeds.at("selection"), state.params)
        )
        for name, held in spec.masked(fed.space.mask(spec)).items():
            counts[name] += float(number) * held
    return counts
