"""The second half of a round: reports are folded as they come, and the server steps on their sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from widthwise.aggregation import CoordinateMean, server_step
from widthwise.compression import decompress
from widthwise.core.errors import DivergenceError, SliceError
from widthwise.core.params import Params, first_non_finite, zeros_like
from widthwise.core.records import (
    Answer,
    ClientReport,
    CompressedReport,
    Dropped,
    SliceSpec,
    SummedReports,
)
from widthwise.core.recycled import Block, fresh
from widthwise.core.threads import one_thread
from widthwise.engine.accounting import client_cost
from widthwise.engine.costs import ClientCost
from widthwise.engine.disk import Disk
from widthwise.engine.federation import Federation
from widthwise.engine.private import released
from widthwise.engine.round import Assignment
from widthwise.engine.state import ServerState
from widthwise.heterogeneity import Estimates, intersection
from widthwise.privacy import clip_factor


@dataclass(frozen=True)
class Trained:
    """What stays known of a client's answer once it is folded.

    Attributes:
        client_id: Index of the client.
        width: The width that it trained.
        num_examples: Its samples.
        loss: Mean loss of its local training.
        cost: What it sent, received and computed.
    """

    client_id: int
    width: float
    num_examples: int
    loss: float
    cost: ClientCost


@dataclass(frozen=True)
class RoundOutcome:
    """What a round did, beside the new state: figures for its record.

    Attributes:
        coverage: Share of the global coordinates that the cohort trained.
        ever_covered: Share that anybody has trained so far.
        train_loss: Mean loss of local training, weighted by samples; None where nobody trained.
        clipped: Share of the updates that were clipped; None without privacy, and where nobody trained.
        trained: Who trained, in the order of the plan.
        dropped: What was left out: answers that do not count, and clients that gave none.
    """

    coverage: float
    ever_covered: float
    train_loss: float | None
    clipped: float | None
    trained: tuple[Trained, ...]
    dropped: tuple[Dropped, ...]


def finish_round(
    fed: Federation,
    state: ServerState,
    assignments: Iterator[Assignment],
    answers: Iterable[Answer | Dropped],
    disk: Disk,
    memory: Callable[[int], Block] = fresh,
) -> tuple[ServerState, RoundOutcome]:
    """Fold the reports, step the server, adapt what is due (steps 6 to 8).

    Each report is folded and let go before the next is asked for. The estimator needs every update beside the
    mean of all: in the rounds in which it is due, reports are spooled and read once more.

    Args:
        fed: The federation.
        state: State returned by ``plan_round``.
        assignments: The assignments, in the order of the plan.
        answers: Their reports in the same order, some of them summed, or all compressed, some dropped; where
            there are no reports, nothing changes but by the noise of a private run.
        disk: Holds client states and spooled reports. States of this round are written; those that ``state``
            names stay.
        memory: Gives what holds the sums while the round lasts.

    Raises:
        DivergenceError: if a new global parameter is not finite.
        SliceError: if a report does not fit the slice that was assigned.
    """
    t, method, space = state.round_index, fed.method, fed.space
    estimator = method.estimator if method.estimator is not None and method.estimator.due(t) else None
    stats = CoordinateMean({name: tuple(value.shape) for name, value in state.params.items()}, memory)
    server = method.objective.server(space, state.server, fed.holders if state.server else {})
    trained: list[Trained] = []
    dropped: list[Dropped] = []
    clipped = 0
    common: SliceSpec | None = None
    estimates: Estimates | None = None
    with disk.spool() as spool:
        for answer in answers:
            if isinstance(answer, Dropped):
                dropped.append(answer)
                continue
            if isinstance(answer, SummedReports):
                assert fed.privacy is None, "what is summed can no longer be clipped"
                stats.add_sum_(space, answer.spec, answer.total, answer.weight)
                told = [_told(assignments, client) for client in answer.client_ids]
                trained += _notes(fed, told, answer)
                continue
            assignment = _told(assignments, answer.client_id)
            report = _received(fed, assignment, answer)
            weight = _weight(fed, report)
            clipped += weight < 1
            stats.add_(space, report.spec, report.delta, weight)
            server.add_(report)
            if method.objective.client_state:
                _renew(fed, state, report, disk)
            if estimator is not None:
                spool.add(report)
                common = report.spec if common is None else intersection(common, report.spec)
            n, cost = report.num_examples, client_cost(fed, assignment, report.num_examples)
            trained.append(Trained(report.client_id, report.spec.width, n, report.metrics["loss"], cost))
        mean, covered = released(fed, state, stats.total()) if fed.privacy else stats.mean()
        params = server_step(state.params, mean, covered, method.uncovered)
        if bad := first_non_finite(params):
            raise DivergenceError(
                f"the global parameter {bad!r} is not finite, but training needs finite numbers. "
                f"{fed.remedy}",
                round_index=t,
                stage="server step",
            )
        if estimator is not None and common is not None:
            with one_thread():
                measured = estimator.measure(space, spool, mean, common)
            estimates = estimator.update(state.estimates, measured, t)
    ever = {name: state.ever_covered[name] | covered[name] for name in covered}
    new = replace(state, round_index=t + 1, params=params, server=server.finish(), ever_covered=ever)
    if method.objective.client_state:
        new = replace(new, clients={**state.clients, **{one.client_id: t for one in trained}})
    if estimates is not None:
        policy = method.policy.observe(state.policy, fed.population, estimates)
        new = replace(new, estimates=estimates, policy=policy, measured=True)
    total = sum(one.num_examples for one in trained)
    outcome = RoundOutcome(
        coverage=_share(covered),
        ever_covered=_share(ever),
        train_loss=sum(one.loss * one.num_examples for one in trained) / total if trained else None,
        clipped=clipped / len(trained) if fed.privacy and trained else None,
        trained=tuple(trained),
        dropped=tuple(dropped),
    )
    return new, outcome


def _told(assignments: Iterator[Assignment], client: int) -> Assignment:
    """Return the assignment of the next client that has answered; those of dropped ones lie before it."""
    return next(one for one in assignments if one.client_id == client)


def _notes(fed: Federation, assignments: Sequence[Assignment], answer: SummedReports) -> Iterator[Trained]:
    # Clients of one slice cost the same for as many samples.
    costs = {n: client_cost(fed, assignments[0], n) for n in set(answer.num_examples)}
    for one, n, loss in zip(assignments, answer.num_examples, answer.losses, strict=True):
        yield Trained(one.client_id, one.spec.width, n, loss, costs[n])


def _received(
    fed: Federation, assignment: Assignment, answer: ClientReport | CompressedReport
) -> ClientReport:
    """Return the report that the server works with: of a compressed one, what it stands for."""
    if isinstance(answer, ClientReport):  # also one that its executor has read already
        return answer
    if fed.compression is None:
        raise SliceError(
            f"client {answer.client_id} sent a compressed report, but this run compresses none. "
            "Give client and server the same configuration."
        )
    return decompress(answer, fed.compression, fed.space, assignment.spec)


def _weight(fed: Federation, report: ClientReport) -> float:
    """Return what an update counts for: under privacy what clips it, else its weight in the mean."""
    if fed.privacy is not None:
        return clip_factor(report.delta, fed.privacy.clip)
    return fed.method.weight(report.num_examples)


def _renew(fed: Federation, state: ServerState, report: ClientReport, disk: Disk) -> None:
    """Write the client's state after the round: the former one, or zeros, and the reported increments."""
    client, names = report.client_id, fed.method.objective.client_state
    states: dict[str, Params] = (
        disk.read(client, state.clients[client])
        if client in state.clients
        else {name: zeros_like(state.params) for name in names}
    )
    for name in names:
        fed.space.scatter_add_(states[name], report.state[name], report.spec)
    disk.write(client, state.round_index, states)


def _share(masks: Params) -> float:
    total = sum(mask.numel() for mask in masks.values())
    return sum(int(np.count_nonzero(mask.numpy())) for mask in masks.values()) / total
