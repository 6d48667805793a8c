"""The price list of a federation: what each width costs each client, and what a stored run has spent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from widthwise.allocation import Costs, Currency, Staircase
from widthwise.compression import Compression
from widthwise.core.records import SliceSpec
from widthwise.slicing import WidthSpace, mask_bytes, num_values
from widthwise.training import Objective

if TYPE_CHECKING:
    import pandas as pd

BYTES_PER_PARAM = 4


@dataclass(frozen=True)
class ClientCost:
    """One client's cost in one round; ``params`` is the number of parameters that it trains."""

    params: int
    bytes_up: int
    bytes_down: int
    macs: int


def slice_cost(
    space: WidthSpace,
    objective: Objective,
    spec: SliceSpec,
    context: SliceSpec,
    samples: int,
    compression: Compression | None = None,
) -> ClientCost:
    """Return what a client sends, receives and computes in one round.

    Formula, with |m| the bytes of a slice (4 a parameter), z those of its compressed form (|m| where there is
    no compression) and f its forward MACs per sample::

        up   = z(spec) (1 + dictionaries reported)     down = |context| + |spec| (dictionaries sent)
        macs = samples * objective.training_macs       (3 f(spec) for a plain step: forward and backward)

    Source: HAS-FL, equation 7 (which counts parameters only). Departs: control variates and the larger
    slice that a distillation teacher needs are counted, headers are not. Under a mask, |m| is the bytes of
    the values that it keeps; the mask travels down as one bit for each masked coordinate (the server made it,
    so an answer needs none), and the MACs are those of the full model.

    Args:
        space: The width space.
        objective: The local objective.
        spec: What the client trains.
        context: What it receives.
        samples: Samples that it passes through the model, over all epochs.
        compression: How it compresses what it reports, if it does.
    """
    params, received = num_values(space, spec), num_values(space, context)
    sent = compression.num_bytes(params) if compression else BYTES_PER_PARAM * params
    down = BYTES_PER_PARAM * (received + params * len(objective.server_state))
    return ClientCost(
        params=params,
        bytes_up=sent * (1 + len(objective.client_state)),
        bytes_down=down + mask_bytes(context),
        macs=round(samples * objective.training_macs(space, spec, context)),
    )


def price_list(
    currency: Currency,
    space: WidthSpace,
    objective: Objective,
    capacities: NDArray[np.float64],
    samples: NDArray[np.int64],
    compression: Compression | None = None,
) -> Costs:
    """Return what each width costs each client, as data for allocation policies.

    A slice, and with it the cost, changes only where a channel group gains a channel, at the widths k / C.

    Args:
        currency: ``params`` of the slice, ``macs`` or ``bytes`` (up and down) of ``slice_cost``, or
            ``width``, which is its own cost.
        space: The width space. Dense selectors keep as many channels as nested slices do; for
            masks there is no price list, since methods refuse them a budget in anything but widths.
        objective: The local objective.
        capacities: [N] largest width of each client.
        samples: [N] samples that each client passes through the model in one round.
        compression: How clients compress what they report, if they do.
    """
    if currency == "width":
        return Costs()
    levels = np.array(space.levels)

    @cache
    def unit(width: float, context: float) -> float:
        """Return the cost of a slice, for MACs that of one sample."""
        spec, outer = space.nested(width), space.nested(context)
        if currency == "params":
            return space.num_params(spec)
        if currency == "macs":
            return objective.training_macs(space, spec, outer)
        cost = slice_cost(space, objective, spec, outer, samples=0, compression=compression)
        return cost.bytes_up + cost.bytes_down

    kinds, kind = np.unique(capacities, return_inverse=True)
    rows = np.array(
        [
            [unit(w, objective.context_width(w, cap)) for w in np.minimum(levels, cap).tolist()]
            for cap in kinds.tolist()
        ]
    )
    return Staircase(levels, rows, kind, samples if currency == "macs" else np.ones_like(samples))


def spent_per_head(
    currency: Currency, rounds: pd.DataFrame, cohort: int, objective: Objective
) -> list[float]:
    """Return what a stored run has spent in each round, divided by the size of the cohort.

    The number of parameters is stored where updates are compressed; elsewhere it follows from ``bytes_up``
    (see ``slice_cost``).

    Args:
        currency: What is counted.
        rounds: The run's table of rounds.
        cohort: Clients per round.
        objective: The run's local objective.
    """
    if currency == "width":
        return [float(width) for width in rounds["mean_width"]]
    reported = BYTES_PER_PARAM * (1 + len(objective.client_state))
    totals = {
        "params": rounds["params"] if "params" in rounds else rounds["bytes_up"] / reported,
        "macs": rounds["macs"],
        "bytes": rounds["bytes_up"] + rounds["bytes_down"],
    }
    return [float(total) / cohort for total in totals[currency]]
