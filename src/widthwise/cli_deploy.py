"""The commands ``widthwise deploy init`` and ``keys``: a federation over Flower, ready to start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from widthwise.cli_errors import say

deploy = typer.Typer(
    help="Write what a federation over Flower needs: a project, certificates and keys.",
    no_args_is_help=True,
)

Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", help="A name or address of the server, beside localhost. Once each."),
]


@deploy.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An empty folder, or one to be made.")],
    config: Annotated[
        str, typer.Option(metavar="FILE|METHOD", help="YAML file of a run, or a method for digits.")
    ] = "hasfl",
    host: Hosts = None,
) -> None:
    """Write a Flower project with TLS and node authentication on; its README says how to start it."""
    from widthwise.deploy.project import write_project

    run = write_project(folder, config, host or [])
    say("project", folder)
    say("next", f"{folder / 'README.md'} has the commands for the server and its {run.task.clients} nodes.")


@deploy.command()
def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A project.")],
    nodes: Annotated[
        int | None, typer.Option(min=1, help="How many nodes there are; by default the clients of run.yaml.")
    ] = None,
    host: Hosts = None,
) -> None:
    """Make the certificates and keys of a project that are not there yet; what is there stays as it is."""
    from widthwise.deploy.keys import make_keys
    from widthwise.deploy.project import KEYS, RUN
    from widthwise.studies import load_config

    count = nodes or load_config(folder / RUN).task.clients
    written = make_keys(folder / KEYS, range(count), host or [])
    for path in written:
        say("written", path)
    if not written:
        say("note", f"All keys of {count} nodes are in {folder / KEYS} already.")
