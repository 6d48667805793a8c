"""The rows of ``clients.parquet``: what each client had and did in a round."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch

from widthwise.engine.federation import Federation
from widthwise.engine.fold import RoundOutcome
from widthwise.engine.round import MAX_LISTED_CLIENTS, RoundPlan
from widthwise.engine.state import ServerState

CLIENT_SCHEMA = pa.schema(
    [
        ("round", pa.int32()),
        ("client", pa.int32()),
        ("participated", pa.bool_()),
        ("capacity", pa.float64()),
        ("width", pa.float64()),
        ("estimate", pa.float64()),
        ("num_examples", pa.int64()),
        ("loss", pa.float64()),
        ("bytes_up", pa.int64()),
        ("bytes_down", pa.int64()),
    ]
)


def client_rows(
    fed: Federation, state: ServerState, assigned: np.ndarray, plan: RoundPlan, outcome: RoundOutcome
) -> pa.Table:
    """Return one row of each listed client; up to ``MAX_LISTED_CLIENTS`` all are, beyond, the cohort.

    Args:
        fed: The federation.
        state: The state after the round.
        assigned: The widths of all clients in the round.
        plan: Its plan.
        outcome: What it did.
    """
    everybody = fed.task.num_clients <= MAX_LISTED_CLIENTS
    clients = np.arange(fed.task.num_clients) if everybody else np.array(plan.cohort.client_ids)
    trained = outcome.trained
    rows = np.searchsorted(clients, [one.client_id for one in trained])
    participated = np.zeros(len(clients), dtype=bool)
    participated[rows] = True

    def column(values: list[float], elsewhere: np.ndarray) -> np.ndarray:
        elsewhere[rows] = values
        return elsewhere

    zeros = np.zeros(len(clients), dtype=np.int64)
    columns = {
        "round": np.full(len(clients), plan.cohort.round_index),
        "client": clients,
        "participated": participated,
        "capacity": fed.task.capacities[clients],
        "width": column([one.width for one in trained], assigned[clients]),
        "estimate": state.estimates[clients] if state.measured else pa.nulls(len(clients)),
        "num_examples": fed.task.partition.sizes()[torch.from_numpy(clients)].numpy(),
        "loss": pa.array(column([one.loss for one in trained], np.zeros(len(clients))), mask=~participated),
        "bytes_up": column([one.cost.bytes_up for one in trained], zeros.copy()),
        "bytes_down": column([one.cost.bytes_down for one in trained], zeros.copy()),
    }
    return pa.table(columns, schema=CLIENT_SCHEMA)
