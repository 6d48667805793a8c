"""The first half of a round: who trains what, in which order, and what each client is sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch

from widthwise.allocation import PolicyState
from widthwise.core.device import upload
from widthwise.core.params import Params, clone
from widthwise.core.records import ClientTask, Cohort, LocalConfig, SliceSpec
from widthwise.core.threads import one_thread
from widthwise.core.traits import Trait
from widthwise.engine.disk import Disk
from widthwise.engine.federation import Federation
from widthwise.engine.state import ServerState
from widthwise.slicing import Moment, WidthSpace

MAX_LISTED_CLIENTS = 1000
"""Up to so many clients, the run folder describes all; beyond, only those that are in a cohort."""


@dataclass(frozen=True)
class Assignment:
    """What one client will train: a ``ClientTask`` whose global slices are not cut out yet.

    Workers of one machine read the global tensors from shared memory, so only this small record and the
    client's own state travel; a server on a network dispatches the full ``ClientTask``.

    ``weight`` is the client's in the mean, where its update is needed for nothing else: a worker may then
    sum updates of one slice. None where the update itself is asked for, as where it is compressed or
    clipped.
    """

    client_id: int
    round_index: int
    samples: int
    spec: SliceSpec
    context_spec: SliceSpec
    capacity: float
    client_state: Mapping[str, Params]
    config: LocalConfig
    seed: int
    weight: float | None = None


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

    def on(self, device: torch.device) -> Broadcast:
        """Return the same tensors on a device."""
        return Broadcast(*upload((self.params, self.buffers, dict(self.server)), device))


@dataclass(frozen=True)
class RoundPlan:
    """Who trains which width in a round.

    Attributes:
        cohort: The clients that were drawn.
        widths: The widths of those who train (a width above 0), in the order in which they are handed out and
            their reports folded: largest slices first, and of these most samples, so that no worker is left
            alone with much to do at the end and clients that can be trained together are neighbours; by id
            among equals. The bits of all sums follow from it.
        samples: How many samples each of them holds.
    """

    cohort: Cohort
    widths: Mapping[int, float]
    samples: Mapping[int, int]


def sample_cohort(fed: Federation, round_index: int) -> Cohort:
    """Draw the cohort of a round without replacement, all clients being equally likely.

    The stream depends on the seed and the round only, so all methods meet the same cohorts.
    """
    rng = fed.seeds.at("sampling", round_index).numpy()
    ids = rng.choice(len(fed.task.capacities), size=fed.training.cohort, replace=False)
    return Cohort(round_index, tuple(sorted(int(i) for i in ids)))


def listed_clients(fed: Federation) -> Sequence[int]:
    """Return the clients that a run folder describes one by one, in ascending order.

    All of them up to ``MAX_LISTED_CLIENTS``; beyond, those that are in a cohort of the run.
    """
    if fed.task.num_clients <= MAX_LISTED_CLIENTS:
        return range(fed.task.num_clients)
    cohorts = (sample_cohort(fed, t).client_ids for t in range(fed.training.rounds))
    return sorted(set(chain.from_iterable(cohorts)))


def allocate(fed: Federation, policy: PolicyState, cohort: Cohort) -> tuple[dict[int, float], PolicyState]:
    """Return the width of each client of a cohort, and the policy's next state.

    Under privacy everybody gets a width, and the cohort's clients have theirs: then no width depends on who
    else takes part, and it is known how many clients would hold each coordinate.
    """
    t, drawn = cohort.round_index, cohort
    if fed.privacy is not None:
        drawn = replace(cohort, client_ids=tuple(range(fed.task.num_clients)))
    rng = fed.seeds.at("allocation", t).numpy()
    widths, policy = fed.method.policy.allocate(policy, fed.population, drawn, rng)
    return {client: widths[client] for client in cohort.client_ids}, policy


def plan_round(fed: Federation, state: ServerState) -> tuple[RoundPlan, ServerState]:
    """Decide who trains which width in ``state.round_index`` (step 1 of a round)."""
    cohort = sample_cohort(fed, state.round_index)
    widths, policy = allocate(fed, state.policy, cohort)
    sizes = fed.task.partition.sizes()[list(cohort.client_ids)].tolist()
    samples = {i: n for i, n in zip(cohort.client_ids, sizes, strict=True) if widths[i] > 0}
    order = sorted(samples, key=lambda i: (-widths[i], -samples[i], i))
    return RoundPlan(cohort, {i: widths[i] for i in order}, samples), replace(state, policy=policy)


def assignments(fed: Federation, state: ServerState, plan: RoundPlan, disk: Disk) -> Iterator[Assignment]:
    """Yield the assignments of a plan in its order (step 2), each made when it is asked for.

    Args:
        fed: The federation.
        state: State returned by ``plan_round``.
        plan: The round's plan.
        disk: Holds the states of the clients that ``state`` names.
    """
    t = state.round_index
    config = replace(fed.training.local(t), precision=fed.engine.precision)
    method = fed.method
    states = method.objective.client_state or method.objective.server_state
    measured = method.estimator is not None and method.estimator.due(t)
    alone = bool(states or measured or fed.compression or fed.privacy)
    seeds, selection = fed.seeds.at("client", t), fed.seeds.at("selection")
    # Slices of one width that lie inside each other are the same, and clients of one width are neighbours.
    own_slices = Trait.COMMON not in method.selector.traits
    spec: SliceSpec | None = None
    for i, width in plan.widths.items():
        capacity = float(fed.task.capacities[i])
        moment = Moment(i, t, selection, state.params)
        if spec is None or own_slices or spec.width != width:
            spec = select(fed, width, moment)
        context = fed.method.objective.context_width(width, capacity)
        yield Assignment(
            client_id=i,
            round_index=t,
            samples=plan.samples[i],
            spec=spec,
            context_spec=spec if context == width else select(fed, context, moment),
            capacity=capacity,
            client_state=_client_state(fed, state, i, spec, disk),
            config=config,
            seed=seeds.at(i).seed(),
            weight=None if alone else method.weight(plan.samples[i]),
        )


def remembered(given: Iterable[Assignment]) -> tuple[Iterator[Assignment], Iterator[Assignment]]:
    """Return assignments to hand out, and once more for who takes their reports in the same order.

    The second yields what the first has yielded before, without the states of clients, and each only once:
    nothing is kept of an assignment whose report is taken.
    """
    waiting: deque[Assignment] = deque()

    def handed_out() -> Iterator[Assignment]:
        for one in given:
            waiting.append(replace(one, client_state={}) if one.client_state else one)
            yield one

    return handed_out(), iter(waiting.popleft, None)


def select(fed: Federation, width: float, moment: Moment) -> SliceSpec:
    """Return the slice of a width that a client trains at this moment."""
    with one_thread():  # norms decide: their last bits must not depend on the number of threads
        return fed.method.selector.select(fed.space, width, moment)


def _client_state(
    fed: Federation, state: ServerState, client: int, spec: SliceSpec, disk: Disk
) -> dict[str, Params]:
    names = fed.method.objective.client_state
    if not names or client not in state.clients:
        return {name: {n: torch.zeros(s) for n, s in fed.space.shapes(spec).items()} for name in names}
    stored = disk.read(client, state.clients[client])
    # Cloned, since a view would travel to a worker together with all that it is a view of.
    return {
        name: clone(spec.masked(fed.space.take({n: stored[name][n] for n in state.params}, spec)))
        for name in names
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
