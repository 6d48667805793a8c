"""A grid without a network: messages become bytes and messages again, and a ClientApp answers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

Answer = Callable[[Message], Message]
Fault = Callable[[Message, Answer], Iterable[Any]]
"""What a node does instead: its message, and what it would answer -> what is pulled (an exception is
raised)."""


def sent(message: Message) -> tuple[Message, int]:
    """Return what arrives of a message, and how many bytes travelled."""
    message_id = message.object_id
    contents = {name: one.deflate() for name, one in get_all_nested_objects(message).items()}
    size = sum(map(len, contents.values()))
    arrived = inflate_object_from_contents(message_id, contents)
    assert isinstance(arrived, Message)
    arrived.metadata.__dict__["_message_id"] = message_id
    return arrived, size


class FakeGrid(Grid):
    """Nodes that answer as soon as they are asked.

    Args:
        app: What runs on each node.
        nodes: Node id -> node-config.
        run_config: Flower's run-config.

    Attributes:
        online: The nodes that are there; may be changed at any time.
        faults: (round, node) -> what that node does in that round; None as the round is a question who it is.
        log: (round, node, bytes down, bytes up) of each message that was answered.
        before: Called with each message before it is delivered.
    """

    def __init__(
        self,
        app: ClientApp,
        nodes: Mapping[int, Mapping[str, Any]],
        run_config: Mapping[str, Any] | None = None,
    ) -> None:
        # What Flower sets in the process of an app, and messages are made with.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.app, self.run_config = app, dict(run_config or {})
        self.contexts: dict[int, Context] = {}
        for node, config in nodes.items():
            self.add(node, config)
        self.online = set(nodes)
        self.faults: dict[tuple[int | None, int], Fault] = {}
        self.log: list[tuple[int | None, int, int, int]] = []
        self.before: Callable[[Message], None] = lambda message: None
        self._waiting: dict[str, list[Any]] = {}

    def add(self, node: int, config: Mapping[str, Any]) -> None:
        """Let a node register; it is online when it is put into ``online``."""
        self.contexts[node] = Context(1, node, dict(config), RecordDict(), dict(self.run_config))

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Any:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return sorted(self.online)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            self.before(message)
            message.metadata.__dict__["_message_id"] = message.object_id
            arrived, down = sent(message)
            node = message.metadata.dst_node_id
            round_index = int(message.metadata.group_id) if message.metadata.group_id else None
            fault = self.faults.get((round_index, node), lambda m, answer: [answer(m)])
            replies = []
            for reply in fault(arrived, self._answer):
                if isinstance(reply, Message):
                    reply, up = sent(reply)
                    self.log.append((round_index, node, down, up))
                replies.append(reply)
            self._waiting[message.object_id] = replies
            ids.append(message.object_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found = [reply for message_id in message_ids for reply in self._waiting.pop(message_id, [])]
        for reply in found:
            if isinstance(reply, Exception):
                raise reply
        return found

    def _answer(self, message: Message) -> Message:
        try:
            return self.app(message, self.contexts[message.metadata.dst_node_id])
        except Exception as error:  # as Flower does
            reason = f"{type(error)}:<'{error}'>"
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
