"""The ClientApp of a run: one client's training, on its own device."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from widthwise.deploy.capacity import CAPACITY, capacity_of
from widthwise.deploy.explain import explain_errors
from widthwise.deploy.roster import NODE, PACKAGES
from widthwise.deploy.settings import identity
from widthwise.deploy.site import Site, site_of


def client_app(config: Path | str) -> ClientApp:
    """Return the ClientApp that trains one client of a configuration.

    The node says which in its node-config: ``partition-id`` is the index of the client, ``capacity`` the
    largest width that it can train (left out: as the configuration says); with ``memory-mb`` and
    ``seconds-per-step`` in its place it measures that itself, once in a run. It answers two kinds of
    messages: ``query``, who it is, and ``train``. Where Flower keeps the process, data, width space and
    modules stay in memory.

    Args:
        config: The file that the ServerApp was made of. It is read when the first message comes.

    Example:
        >>> app = client_app("config.yaml")
    """
    explain_errors()
    app, path = ClientApp(), Path(config)

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        return Message(RecordDict({NODE: _introduction(site_of(path, context), context)}), reply_to=message)

    @app.train()
    def work(message: Message, context: Context) -> Message:
        site = site_of(path, context)
        return Message(site.train(message, site.client(context)), reply_to=message)

    return app


def _introduction(site: Site, context: Context) -> ConfigRecord:
    client = site.client(context)
    said: dict[str, str | int | float] = {
        "client": client,
        "samples": len(site.task.partition.client(client)),
        "config": identity(site.config),
        **{package: version(package) for package in PACKAGES},
    }
    if (capacity := capacity_of(site, context)) is not None:
        said[CAPACITY] = capacity
    return ConfigRecord(dict(said))
