"""The ClientApp of a run: one client's training, on its own device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp

from widthwise.core.errors import ConfigError, InputError
from widthwise.core.threads import one_thread
from widthwise.deploy.roster import NODE, PACKAGES
from widthwise.deploy.settings import configured
from widthwise.deploy.wire import decode_task, encode_report, size_of
from widthwise.methods import build_method
from widthwise.slicing import WidthSpace
from widthwise.studies.build import trace_task
from widthwise.studies.config import RunConfig
from widthwise.tasks import Task, build_task
from widthwise.training import ModuleCache, train

CLIENT, CAPACITY = "partition-id", "capacity"


def client_app(config: Path | str) -> ClientApp:
    """Return the ClientApp that trains one client of a configuration.

    The node says which in its node-config: ``partition-id`` is the index of the client, ``capacity`` the
    largest width that it can train (left out: as the configuration says). It answers two kinds of messages:
    ``query``, who it is, and ``train``. Where Flower keeps the process, data, width space and modules stay
    in memory.

    Args:
        config: The file that the ServerApp was made of. It is read when the first message comes.

    Example:
        >>> app = client_app("config.yaml")
    """
    app, path = ClientApp(), Path(config)

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        site = _site(path, tuple(sorted(context.run_config.items())))
        return Message(RecordDict({NODE: site.introduce(context.node_config)}), reply_to=message)

    @app.train()
    def work(message: Message, context: Context) -> Message:
        site = _site(path, tuple(sorted(context.run_config.items())))
        return Message(site.train(message, site.client(context.node_config)), reply_to=message)

    return app


@dataclass(frozen=True)
class Site:
    """What a device keeps from one message to the next, made when it is needed first.

    Attributes:
        config: The run.
    """

    config: RunConfig

    @cached_property
    def task(self) -> Task:
        """Data, partition and model."""
        return build_task(self.config.task, self.config.capacity, self.config.seed)

    @cached_property
    def space(self) -> WidthSpace:
        """Width space of the model."""
        return trace_task(self.config, self.task)

    @cached_property
    def module_for(self) -> ModuleCache:
        """Modules that are trained."""
        return ModuleCache(self.space)

    def client(self, node_config: UserConfig) -> int:
        """Return which client this node is.

        Raises:
            ConfigError: if the node does not say, or there is no such client.
        """
        client, clients = node_config.get(CLIENT), self.task.num_clients
        if type(client) is not int or not 0 <= client < clients:
            raise ConfigError(
                f"{CLIENT} in the node-config is {client!r}, but the clients are 0 to {clients - 1}. "
                f"Start the node with --node-config '{CLIENT}=0'."
            )
        return client

    def introduce(self, node_config: UserConfig) -> ConfigRecord:
        """Return who this node is."""
        client = self.client(node_config)
        said: dict[str, str | int | float] = {
            "client": client,
            "samples": len(self.task.partition.client(client)),
            "config": self.config.hash(),
            **{package: version(package) for package in PACKAGES},
        }
        if (capacity := node_config.get(CAPACITY)) is not None:
            said["capacity"] = float(capacity)
        return ConfigRecord(dict(said))

    def train(self, message: Message, client: int) -> RecordDict:
        """Train what a message asks for and return the answer.

        Raises:
            InputError: if the message is for another client.
            DivergenceError: if a loss or the update is not finite.
        """
        task, tiers = decode_task(message.content, self.space)
        if task.client_id != client:
            raise InputError(
                f"a task is for client {task.client_id}, but this node is client {client}. Drop it."
            )
        with one_thread():
            report = train(
                task,
                space=self.space,
                module_for=self.module_for,
                dataset=self.task.train,
                indices=self.task.partition.client(client),
                objective=build_method(self.config.method).objective.for_tiers(tiers),
            )
        return encode_report(report, size_of(message))


@lru_cache(maxsize=1)
def _site(path: Path, run_config: tuple[tuple[str, bool | float | int | str], ...]) -> Site:
    return Site(configured(path, dict(run_config))[0])
