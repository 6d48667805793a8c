"""One round as functions: who trains what, and what the server makes of the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from widthwise.aggregation import CoordinateMean, server_step
from widthwise.core.errors import DivergenceError
from widthwise.core.params import Params, clone, first_non_finite, zeros_like
from widthwise.core.records import ClientReport, ClientTask, Cohort, LocalConfig, SliceSpec
from widthwise.core.threads import one_thread
from widthwise.engine.federation import Federation
from widthwise.engine.state import ServerState
from widthwise.slicing import Moment, WidthSpace


@dataclass(frozen=True)
class Assignment:
    """What one client will train: a ``ClientTask`` whose global slices are not cut out yet.

    Workers of one machine read the global tensors from shared memory, so only this small record and the
    client's own state travel; a server on a network dispatches the full ``ClientTask``.
    """

    client_id: int
    round_index: int
    spec: SliceSpec
    context_spec: SliceSpec
    capacity: float
    client_state: Mapping[str, Params]
    config: LocalConfig
    seed: int


@dataclass(frozen=True)
class Broadcast:
    """The global tensors that every client's slices of a round are cut from."""

    params: Params
    buffers: Params
    server: Mapping[str, Params]

    @classmethod
    def of(cls, state: ServerState) -> Broadcast:
        """Return what a state sends out."""
        return cls(state.params, state.buffers, state.server)


@dataclass(frozen=True)
class RoundPlan:
    """The cohort of a round and the assignments of those who train (a width above 0), in cohort order."""

    cohort: Cohort
    assignments: tuple[Assignment, ...]


def sample_cohort(fed: Federation, round_index: int) -> Cohort:
    """Draw the cohort of a round without replacement, all clients being equally likely.

    The stream depends on the seed and the round only, so all methods meet the same cohorts.
    """
    rng = fed.seeds.at("sampling", round_index).numpy()
    ids = rng.choice(len(fed.task.capacities), size=fed.training.cohort, replace=False)
    return Cohort(round_index, tuple(sorted(int(i) for i in ids)))


def plan_round(fed: Federation, state: ServerState) -> tuple[RoundPlan, ServerState]:
    """Decide who trains which slice in ``state.round_index`` (steps 1 and 2 of a round)."""
    t = state.round_index
    cohort = sample_cohort(fed, t)
    widths, policy = fed.method.policy.allocate(
        state.policy, fed.population, cohort, fed.seeds.at("allocation", t).numpy()
    )
    config = replace(fed.training.local(t), precision=fed.engine.precision)
    assignments = []
    for i in (i for i in cohort.client_ids if widths[i] > 0):
        capacity = float(fed.task.capacities[i])
        moment = Moment(i, t, fed.seeds.at("selection"), state.params)
        spec = _select(fed, widths[i], moment)
        context = fed.method.objective.context_width(widths[i], capacity)
        assignments.append(
            Assignment(
                client_id=i,
                round_index=t,
                spec=spec,
                context_spec=spec if context == widths[i] else _select(fed, context, moment),
                capacity=capacity,
                client_state=_client_state(fed, state, i, spec),
                config=config,
                seed=fed.seeds.at("client", t, i).seed(),
            )
        )
    return RoundPlan(cohort, tuple(assignments)), replace(state, policy=policy)


def _select(fed: Federation, width: float, moment: Moment) -> SliceSpec:
    with one_thread():  # norms decide: their last bits must not depend on the number of threads
        return fed.method.selector.select(fed.space, width, moment)


def _client_state(fed: Federation, state: ServerState, client: int, spec: SliceSpec) -> dict[str, Params]:
    stored = state.clients.get(client, {})
    # Cloned, since a view would travel to a worker together with all that it is a view of.
    return {
        name: clone(spec.masked(fed.space.take(stored[name], spec)))
        if name in stored
        else {n: torch.zeros(shape) for n, shape in fed.space.shapes(spec).items()}
        for name in fed.method.objective.client_state
    }


def dispatch(space: WidthSpace, broadcast: Broadcast, assignment: Assignment) -> ClientTask:
    """Cut a client's slices out of the global tensors (step 3)."""
    a = assignment
    server = {name: a.spec.masked(space.take(tensors, a.spec)) for name, tensors in broadcast.server.items()}
    return ClientTask(
        client_id=a.client_id,
        round_index=a.round_index,
        spec=a.spec,
        context_spec=a.context_spec,
        capacity=a.capacity,
        params=a.context_spec.masked(space.take(broadcast.params, a.context_spec)),
        buffers=space.take(broadcast.buffers, a.context_spec),
        state={**a.client_state, **server},
        config=a.config,
        seed=a.seed,
    )


@dataclass(frozen=True)
class RoundOutcome:
    """What a round did, beside the new state: figures for its record."""

    coverage: float
    ever_covered: float
    train_loss: float | None


def finish_round(
    fed: Federation, state: ServerState, plan: RoundPlan, reports: Sequence[ClientReport]
) -> tuple[ServerState, RoundOutcome]:
    """Fold the reports, step the server, adapt what is due (steps 6 to 8).

    Args:
        fed: The federation.
        state: State returned by ``plan_round``.
        plan: The round's plan.
        reports: One report of each assignment, in cohort order; where there is none, nothing changes.

    Raises:
        DivergenceError: if a new global parameter is not finite.
    """
    t, method, space = state.round_index, fed.method, fed.space
    stats = CoordinateMean({name: tuple(value.shape) for name, value in state.params.items()})
    for report in reports:
        weight = report.num_examples if method.weighting == "examples" else 1
        stats.add_(space, report.spec, report.delta, float(weight))
    mean, covered = stats.mean()
    params = server_step(state.params, mean, covered, method.uncovered)
    if bad := first_non_finite(params):
        raise DivergenceError(
            f"the global parameter {bad!r} is not finite, but training needs finite numbers. "
            "Lower training.lr.",
            round_index=t,
            stage="server step",
        )
    server = state.server
    if server:
        server = method.objective.server_update(space, server, reports, fed.holders)
    ever = {name: state.ever_covered[name] | covered[name] for name in covered}
    new = replace(
        state,
        round_index=t + 1,
        params=params,
        server=server,
        clients=_new_client_states(fed, state, reports),
        ever_covered=ever,
    )
    total = sum(r.num_examples for r in reports)
    outcome = RoundOutcome(
        coverage=_share(covered),
        ever_covered=_share(ever),
        train_loss=sum(r.metrics["loss"] * r.num_examples for r in reports) / total if reports else None,
    )
    return _adapt(fed, new, reports, mean), outcome


def _adapt(fed: Federation, state: ServerState, reports: Sequence[ClientReport], mean: Params) -> ServerState:
    estimator, t = fed.method.estimator, state.round_index - 1
    if estimator is None or not reports or not estimator.due(t):
        return state
    with one_thread():
        measured = estimator.measure(fed.space, reports, mean)
    estimates = estimator.update(state.estimates, measured, t)
    policy = fed.method.policy.observe(state.policy, fed.population, estimates)
    return replace(state, estimates=estimates, policy=policy, measured=True)


def _new_client_states(
    fed: Federation, state: ServerState, reports: Sequence[ClientReport]
) -> Mapping[int, Mapping[str, Params]]:
    names = fed.method.objective.client_state
    if not names:
        return state.clients
    clients = dict(state.clients)
    for report in reports:
        old = clients.get(report.client_id, {})
        updated: dict[str, Params] = {}
        for name in names:
            tensors = clone(old[name]) if name in old else zeros_like(state.params)
            fed.space.scatter_add_(tensors, report.state[name], report.spec)
            updated[name] = tensors
        clients[report.client_id] = updated
    return clients


def _share(masks: Params) -> float:
    total = sum(mask.numel() for mask in masks.values())
    return sum(int(mask.sum()) for mask in masks.values()) / total
