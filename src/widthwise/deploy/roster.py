"""Which node is which client: nodes are asked once who they are, and what they say is checked."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flwr.app import Message, MessageType, RecordDict

from widthwise.deploy.check import Rejection, printable, reason_of
from widthwise.deploy.exchange import LOG, POLL, Exchange, Unreadable

NODE = "node"
"""The record in which a node says who it is."""


PACKAGES: tuple[str, ...] = ("widthwise", "torch", "flwr")
"""Those whose versions a node tells."""


@dataclass(frozen=True)
class Claim:
    """What a node says of itself.

    Attributes:
        client: The client whose samples it holds.
        capacity: The largest width that it can train; None: as the configuration says.
        samples: How many samples it holds.
        versions: Package -> version.
    """

    client: int
    capacity: float | None
    samples: int
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Expected:
    """What a node must be to take part.

    Attributes:
        config_hash: Of the configuration that the server has.
        capacities: Client -> width that the run counts on, of a run whose capacities are settled; else None,
            and any capacity is welcome.
        num_clients: Number of clients of the run.
    """

    config_hash: str
    num_clients: int
    capacities: Mapping[int, float] | None = None


def check_claim(reply: Message, expected: Expected) -> Claim | Rejection:
    """Return what a node claims to be, or why it cannot take part. Pure."""
    if reply.has_error():
        return Rejection("error", reason_of(reply.error))
    record: dict[str, Any] = dict(reply.content.config_records.get(NODE, {}))
    client, capacity, samples = (record.get(name) for name in ("client", "capacity", "samples"))
    if record.get("config") != expected.config_hash:
        return Rejection(
            "config", f"it has configuration {record.get('config')!r:.40}, not {expected.config_hash}"
        )
    if type(client) is not int or not 0 <= client < expected.num_clients:
        return Rejection(
            "client", f"it says that it is client {client!r:.40}, not 0 to {expected.num_clients - 1}"
        )
    if type(samples) is not int or samples < 1:
        return Rejection("samples", f"it says {samples!r:.40} samples, but a client has at least 1")
    if capacity is not None:
        if not (isinstance(capacity, float) and 0 < capacity <= 1):
            return Rejection("capacity", f"it says capacity {capacity!r:.40}, but a width is in (0, 1]")
        counted_on = (expected.capacities or {}).get(client, 0.0)
        if capacity < counted_on:
            return Rejection(
                "capacity", f"it can train {capacity:g}, but the run counts on {counted_on:g} of it"
            )
    versions = {name: printable(str(record[name]))[:20] for name in PACKAGES if name in record}
    return Claim(client, capacity, samples, versions)


class Roster:
    """Knows the node of each client, from one round to the next.

    Of several nodes that claim one client, the first counts while it is online and does not fail; the others
    are refused and wait. A node that reconnects under a new id is a new node, and asked again. A node that
    has been refused is asked again in each round.

    Args:
        exchange: To reach them.
        expected: What they must be.
        ttl: Seconds for which a question is valid.
    """

    def __init__(self, exchange: Exchange, expected: Expected, ttl: float) -> None:
        self.claims: dict[int, Claim] = {}
        self._exchange, self._expected, self._ttl = exchange, expected, ttl
        self._asked: dict[int, str] = {}
        self._refused: set[int] = set()
        self._said: dict[int, str] = {}
        self._queues: dict[int, list[int]] = {}

    def settle(self, capacities: Mapping[int, float]) -> None:
        """From now on count on these capacities; nodes that can do less have to say so again."""
        self._expected = replace(self._expected, capacities=capacities)
        for node, claim in list(self.claims.items()):
            if claim.capacity is not None and claim.capacity < capacities[claim.client]:
                del self.claims[node]
                self._queues[claim.client].remove(node)

    def node_of(self, client: int) -> int | None:
        """Return the node that stands for a client, as of the last look."""
        return next(iter(self._queues.get(client, ())), None)

    def members(self) -> list[Claim]:
        """Return what the nodes that stand for clients have said."""
        return [self.claims[queue[0]] for queue in self._queues.values() if queue]

    def gather(self, clients: Sequence[int], least: int, seconds: float) -> int:
        """Wait until so many of the clients have a node, at most so long; return how many have one."""
        until = time.monotonic() + seconds
        self._look()
        while (found := len(clients) - self._missing(clients)) < least and time.monotonic() < until:
            time.sleep(POLL)
            self._look()
        return found

    def refresh(self, clients: Sequence[int], seconds: float) -> None:
        """Look who is there. Where a client has no node, new nodes get so long to say who they are."""
        until = time.monotonic() + seconds
        self._refused.clear()
        new = self._look()
        while self._missing(clients) and new & self._asked.keys() and time.monotonic() < until:
            time.sleep(POLL)
            self._hear()

    def failed(self, client: int, node: int) -> None:
        """Let another node that claims the client, if there is one, take the place of one that failed."""
        queue = self._queues.get(client, [])
        if len(queue) > 1 and queue[0] == node:
            queue.append(queue.pop(0))
            LOG.warning("client %d: node %d takes the place of node %d", client, queue[0], node)

    def _missing(self, clients: Sequence[int]) -> int:
        return sum(not self._queues.get(client) for client in clients)

    def _look(self) -> set[int]:
        """Let go of nodes that are gone, ask new ones who they are; return the latter."""
        online = self._exchange.nodes()
        for queue in self._queues.values():
            queue[:] = [node for node in queue if node in online]
        for known in (self.claims, self._asked, self._said):
            for node in known.keys() - online:
                del known[node]
        new = online - self.claims.keys() - self._asked.keys() - self._refused
        for node in sorted(new):
            message = Message(RecordDict(), node, MessageType.QUERY, ttl=self._ttl)
            if (message_id := self._exchange.push(message)) is not None:
                self._asked[node] = message_id
        self._hear()
        return new

    def _hear(self) -> None:
        for node, message_id in list(self._asked.items()):
            try:
                replies = self._exchange.pull(message_id)
                found = check_claim(replies[0], self._expected) if replies else None
            except Unreadable as error:
                found = Rejection("unreadable", str(error))
            if found is None:
                continue
            del self._asked[node]
            if isinstance(found, Rejection):
                self._refused.add(node)
                self._refuse(node, found.reason)
            else:
                self._admit(node, found)

    def _admit(self, node: int, claim: Claim) -> None:
        self.claims[node] = claim
        queue = self._queues.setdefault(claim.client, [])
        queue.append(node)
        if queue[0] != node:
            self._refuse(node, f"client {claim.client} is node {queue[0]} already, and there is one for each")
            return
        self._said.pop(node, None)
        capacity = "as configured" if claim.capacity is None else f"{claim.capacity:g}"
        versions = ", ".join(f"{name} {version}" for name, version in claim.versions.items())
        text = "client %d is node %d: capacity %s, %d samples, %s"
        LOG.info(text, claim.client, node, capacity, claim.samples, versions)

    def _refuse(self, node: int, reason: str) -> None:
        if self._said.get(node) != reason:  # it is asked again in each round, and says the same
            LOG.warning("node %d is refused: %s", node, reason)
            self._said[node] = reason
