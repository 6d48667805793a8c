"""What a device keeps in memory, and what it does with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from flwr.app import Context, Message, RecordDict

from widthwise.core.errors import ConfigError, InputError
from widthwise.deploy.exchange import LOG
from widthwise.deploy.settings import configured
from widthwise.deploy.wire import decode_task, encode_report, size_of
from widthwise.engine.devices import devices
from widthwise.engine.worker import ClientRunner
from widthwise.methods import build_method
from widthwise.slicing import WidthSpace
from widthwise.studies.build import trace_task
from widthwise.studies.config import RunConfig
from widthwise.tasks import Task, build_task

CLIENT = "partition-id"


@dataclass(frozen=True)
class Site:
    """The run as a device knows it. What it needs is made when it is needed first.

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
    def runner(self) -> ClientRunner:
        """Trains, as a worker of a simulation would: on the device that the configuration means here."""
        config = self.config
        if config.engine.warning is not None:
            LOG.warning("%s", config.engine.warning)
        return ClientRunner(
            self.task.train,
            self.task.partition,
            self.space,
            build_method(config.method).objective,
            devices=devices(config.engine.device),
            compression=config.compression,
        )

    def client(self, context: Context) -> int:
        """Return which client this node is.

        Raises:
            ConfigError: if the node does not say, or there is no such client.
        """
        client, clients = context.node_config.get(CLIENT), self.config.task.clients
        if type(client) is not int or not 0 <= client < clients:
            raise ConfigError(
                f"{CLIENT} in the node-config is {client!r}, but the clients are 0 to {clients - 1}. "
                f"Start the node with --node-config '{CLIENT}=0'."
            )
        return client

    def train(self, message: Message, client: int) -> RecordDict:
        """Train what a message asks a client for, and return the answer.

        Raises:
            InputError: if the message is for another client.
            DivergenceError: if a loss or the update is not finite.
        """
        task, tiers = decode_task(message.content, self.space)
        if task.client_id != client:
            raise InputError(
                f"a task is for client {task.client_id}, but this node is client {client}. Drop it."
            )
        self.runner.objective = build_method(self.config.method).objective.for_tiers(tiers)
        report = self.runner.train(task)
        return encode_report(report, size_of(message))


def site_of(path: Path, context: Context) -> Site:
    """Return the run that a node takes part in, the same one for as long as Flower keeps the process.

    Raises:
        ConfigError: if the configuration is wrong.
    """
    return _site(path, tuple(sorted(context.run_config.items())))


@lru_cache(maxsize=1)
def _site(path: Path, run_config: tuple[tuple[str, bool | float | int | str], ...]) -> Site:
    return Site(configured(path, dict(run_config))[0])
