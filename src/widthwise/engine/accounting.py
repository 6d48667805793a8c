"""What a round costs, client by client: bytes on the wire and multiply-accumulates."""

from __future__ import annotations

from dataclasses import dataclass

from widthwise.core.records import ClientReport
from widthwise.engine.federation import Federation
from widthwise.engine.round import Assignment


@dataclass(frozen=True)
class ClientCost:
    """One client's cost in one round."""

    bytes_up: int
    bytes_down: int
    macs: int


def client_cost(fed: Federation, assignment: Assignment, report: ClientReport) -> ClientCost:
    """Return what a client sent, received and computed.

    Formula, with |m| the bytes of a slice (4 a parameter) and f its forward MACs per sample::

        up   = |spec| (1 + dictionaries reported)      down = |context| + |spec| (dictionaries sent)
        macs = n_i * epochs * objective.training_macs  (3 f(spec) for a plain step: forward and backward)

    Source: HAS-FL, equation 7 (which counts parameters only). Departs: control variates and the larger
    slice that a distillation teacher needs are counted, headers are not.
    """
    space, a = fed.space, assignment
    slice_bytes = space.upload_bytes(a.spec)
    samples = report.num_examples * a.config.local_epochs
    return ClientCost(
        bytes_up=slice_bytes * (1 + len(report.state)),
        bytes_down=space.upload_bytes(a.context_spec) + slice_bytes * len(fed.method.objective.server_state),
        macs=round(samples * fed.method.objective.training_macs(space, a.spec, a.context_spec)),
    )
