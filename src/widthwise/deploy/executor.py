"""The engine's executor whose clients are nodes of a grid: some never answer, and not every answer counts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

from flwr.app import ArrayRecord, ConfigRecord, Message

from widthwise.core.errors import RunError
from widthwise.core.records import ClientReport, Dropped, SliceSpec
from widthwise.deploy.check import Rejection
from widthwise.deploy.exchange import LOG, Exchange, Unreadable
from widthwise.deploy.journal import ACCEPTED, Entry, Journal
from widthwise.deploy.roster import Roster
from widthwise.deploy.untrained import untrained
from widthwise.deploy.wire import Size, size_of
from widthwise.engine.config import DeployConfig
from widthwise.engine.costs import BYTES_PER_PARAM, slice_cost
from widthwise.engine.executors import RepeatRound
from widthwise.engine.federation import Federation
from widthwise.engine.round import Assignment, Broadcast
from widthwise.slicing import num_values

if TYPE_CHECKING:
    from widthwise.deploy.strategy import SliceStrategy

NOTHING = Size(0, 0)
GONE = {"deadline", "expired", "offline", "unsent"}
"""After these another node that claims the client takes its place."""


@dataclass
class Asked:
    """A client of the round in hand: what it is asked, and what comes of it.

    Attributes:
        assignment: What it is to do.
        node: Its node.
        message_id: Of the message that it was sent, None where the SuperLink has not taken it.
        sent: Size of the message.
        at: When it was sent.
        verdicts: Each reply, and what it is worth, in the order in which they came.
    """

    assignment: Assignment
    node: int
    message_id: str | None = None
    sent: Size = NOTHING
    at: float = 0.0
    verdicts: list[tuple[Message, ClientReport | Rejection]] = field(default_factory=list)


@dataclass(frozen=True)
class Hand:
    """The round in hand, which the strategy makes messages of.

    Attributes:
        broadcast: The global tensors.
        asked: Those who have a node, in the order of the plan.
    """

    broadcast: Broadcast
    asked: Sequence[Asked]

    def by_message(self, message_id: str) -> Asked:
        """Return who was sent a message."""
        return next(one for one in self.asked if one.message_id == message_id)


class GridExecutor:
    """Sends each client of a round its slice and yields the reports that count, in the order of the plan.

    All messages go out first; then replies are pulled in the order of the plan, so that one report is held
    at a time. What never comes within the deadline or does not count is dropped: counted, logged in one
    line, and written to the journal.

    Args:
        strategy: Makes messages and judges replies.
        exchange: To send and to receive.
        roster: Knows the nodes.
        federation: What is run.
        settings: What a round waits for.
        journal: Takes what was sent and received.
    """

    def __init__(
        self,
        strategy: SliceStrategy,
        exchange: Exchange,
        roster: Roster,
        federation: Federation,
        settings: DeployConfig,
        journal: Journal,
    ) -> None:
        self._strategy, self._exchange, self._roster = strategy, exchange, roster
        self._fed, self._settings, self._journal = federation, settings, journal
        self._attempt = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def run(
        self, broadcast: Broadcast, assignments: Iterable[Assignment]
    ) -> Iterator[ClientReport | Dropped]:
        """Yield a report, or that it is dropped, for each assignment in their order.

        Raises:
            RepeatRound: if fewer answers count than ``deploy.min_cohort``.
            RunError: if that happens once more than ``deploy.repeats`` in a row.
        """
        plan = list(assignments)
        if not plan:
            return
        self._exchange.discard_late()
        self._roster.refresh(
            [one.client_id for one in plan], min(self._settings.wait, self._settings.deadline)
        )
        asked = self._send(broadcast, plan)
        until = time.monotonic() + self._settings.deadline
        trained: list[SliceSpec] = []
        for assignment in plan:
            for answer in self._answers(assignment, asked.get(assignment.client_id), until):
                if isinstance(answer, ClientReport):
                    trained.append(answer.spec)
                yield answer
        if len(trained) < len(plan):
            lost = untrained(self._fed.space, [one.spec for one in plan], trained)
            if lost.share:
                LOG.warning("round %d: %s", plan[0].round_index, lost)
        self._check_number(plan, len(trained))

    def _send(self, broadcast: Broadcast, plan: Sequence[Assignment]) -> dict[int, Asked]:
        """Send all messages; return who was asked, by client."""
        nodes = ((one, self._roster.node_of(one.client_id)) for one in plan)
        asked = [Asked(assignment, node) for assignment, node in nodes if node is not None]
        self._strategy.hand = Hand(broadcast, asked)
        messages = self._strategy.configure_train(
            plan[0].round_index + 1, ArrayRecord(), ConfigRecord(), self._exchange.grid
        )
        for one, message in zip(asked, messages, strict=True):
            one.message_id = self._exchange.push(message)
            one.sent, one.at = size_of(message), time.monotonic()
        return {one.assignment.client_id: one for one in asked}

    def _answers(
        self, assignment: Assignment, asked: Asked | None, until: float
    ) -> Iterator[ClientReport | Dropped]:
        """Yield what comes of one assignment: a report or its loss, and answers too many."""
        if asked is None:
            yield self._dropped(assignment, None, Rejection("absent", "it has no node"))
            return
        if asked.message_id is None:
            yield self._dropped(
                assignment, asked, Rejection("unsent", "the SuperLink took no message for it")
            )
            return
        try:
            replies = self._exchange.wait(asked.message_id, until)
        except Unreadable as error:
            yield self._dropped(assignment, asked, Rejection("unreadable", str(error)))
            return
        if not replies:
            reason = f"no answer within {self._settings.deadline:g} s"
            yield self._dropped(assignment, asked, Rejection("deadline", reason))
        self._strategy.aggregate_train(assignment.round_index + 1, replies)
        for reply, verdict in asked.verdicts:
            size = size_of(reply)
            if isinstance(verdict, Rejection):
                yield self._dropped(assignment, asked, verdict, size)
            else:
                self._note(assignment, asked, ACCEPTED, None, size)
                yield verdict
        asked.verdicts.clear()

    def _dropped(
        self, assignment: Assignment, asked: Asked | None, why: Rejection, size: Size = NOTHING
    ) -> Dropped:
        client, t, node = assignment.client_id, assignment.round_index, asked.node if asked else None
        text = "round %d: client %d (node %s) is dropped, %s: %s"
        LOG.warning(text, t, client, "none" if node is None else node, why.kind, why.reason)
        self._note(assignment, asked, why.kind, why.reason, size)
        if node is not None and why.kind in GONE:
            self._roster.failed(client, node)
        return Dropped(client, t, why.kind, why.reason)

    def _note(
        self, assignment: Assignment, asked: Asked | None, outcome: str, reason: str | None, size: Size
    ) -> None:
        a, sent = assignment, asked.sent if asked else NOTHING
        space, objective = self._fed.space, self._fed.method.objective
        specs = a.spec, a.context_spec
        table = slice_cost(space, objective, *specs, samples=0, compression=self._fed.compression)
        # A device keeps nothing between rounds, so its own states come from the server.
        states = BYTES_PER_PARAM * num_values(space, a.spec) * len(objective.client_state)
        self._journal.add(
            Entry(
                round=a.round_index,
                attempt=self._attempt,
                client=a.client_id,
                node=asked.node if asked else None,
                outcome=outcome,
                reason=reason,
                bytes_down=sent.wire,
                tensors_down=sent.tensors,
                table_down=table.bytes_down + states,
                bytes_up=size.wire,
                tensors_up=size.tensors,
                table_up=table.bytes_up,
                seconds=time.monotonic() - asked.at if asked else 0.0,
            )
        )

    def _check_number(self, plan: Sequence[Assignment], counted: int) -> None:
        settings, t = self._settings, plan[0].round_index
        least = min(settings.min_cohort, len(plan))
        if counted >= least:
            self._attempt = 0
            return
        if self._attempt == settings.repeats:
            raise RunError(
                f"the number of answers that count is {counted} of {len(plan)} after "
                f"{settings.repeats} repeats, but deploy.min_cohort asks for {least}. See nodes.jsonl for "
                "what became of each; bring nodes back and start again: the run goes on from here.",
                round_index=t,
                stage="training",
            )
        self._attempt += 1
        LOG.warning("round %d: %d of %d answers count, %d are needed: repeated", t, counted, len(plan), least)
        self._roster.gather([one.client_id for one in plan], least, settings.wait)
        raise RepeatRound
