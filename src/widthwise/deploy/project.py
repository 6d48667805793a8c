"""Write a Flower project that runs a federation: two apps, the run's configuration, certificates and keys."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from widthwise.core.errors import ConfigError, InputError, unknown_name
from widthwise.core.seeds import SeedTree
from widthwise.deploy.keys import LOCAL, make_keys
from widthwise.methods import METHODS
from widthwise.studies import RunConfig, load_config
from widthwise.studies.config import parse_yaml

KEYS = "keys"
RUN = Path("federation") / "run.yaml"
PORT = 8000
"""Where the SuperLink listens, on its own machine alone."""

OUTER_PORT = 8443
"""Where nodes on other machines come in."""

NODE_PORT = 9094
"""The first of the nodes' own ports, where several nodes share a machine."""

#: Template -> file of the project.
FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "config.toml": ".flwr/config.toml",
    "nginx.conf": "nginx.conf",
    "init.py": "federation/__init__.py",
    "server_app.py": "federation/server_app.py",
    "client_app.py": "federation/client_app.py",
}


@dataclass(frozen=True)
class Node:
    """A node as the project's README starts it: its number, its port, and the capacity where it is given."""

    number: int
    port: int
    capacity: float


def write_project(folder: Path, config: str = "hasfl", hosts: Sequence[str] = ()) -> RunConfig:
    """Write a ready project into a folder that is empty or not there, all of it or nothing.

    Args:
        folder: The project.
        config: A YAML file of a run, copied as it is, or the name of a method for a first run on digits.
        hosts: Names and addresses under which nodes reach the server, beside those of its own machine.

    Returns:
        The configuration that the project runs.

    Raises:
        InputError: if the folder holds something or cannot be written, if ``config`` is no configuration and
            no method, or if a host is neither a name nor an address.
    """
    folder = folder.resolve()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(
            f"folder is {str(folder)!r}, but it holds something, and a project needs an empty one. "
            "Choose another."
        )
    text, run = _run_file(config)
    capacities = run.capacity.draw(run.task.clients, SeedTree(run.seed))
    nodes = [Node(i, NODE_PORT + i, float(width)) for i, width in enumerate(capacities)]
    values = {
        "name": _project_name(folder.name),
        "method": run.method["name"],
        "dataset": run.task.dataset,
        "folder": str(folder),
        "local": LOCAL[1],
        "server": next(iter(hosts), "SERVER"),
        "port": PORT,
        "outer_port": OUTER_PORT,
        "nodes": nodes,
    }
    with _filled(folder) as draft:
        for template, name in FILES.items():
            (draft / name).parent.mkdir(exist_ok=True)
            (draft / name).write_text(_render(template, **values), encoding="utf-8")
        (draft / RUN).write_text(text, encoding="utf-8")
        make_keys(draft / KEYS, range(len(nodes)), hosts)
    return run


@contextmanager
def _filled(folder: Path) -> Iterator[Path]:
    """Yield a draft whose content is moved into an empty or new folder at the end, if all goes well.

    The draft lies inside, where moving is renaming; the folder itself stays the one that a shell may be in.
    """
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            draft = folder / ".draft"
            draft.mkdir()
            yield draft
            for path in draft.iterdir():
                path.rename(folder / path.name)
            draft.rmdir()
        except BaseException:
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if new:
                folder.rmdir()
            raise
    except OSError as error:
        raise InputError(
            f"folder is {str(folder)!r}, but it cannot be written ({error.strerror or error}). "
            "Choose another."
        ) from error


def _run_file(config: str) -> tuple[str, RunConfig]:
    """Return the text of the run's file and what it says."""
    if config in METHODS:
        text = _render("run.yaml", method=config)
        return text, RunConfig(**parse_yaml(text))
    if not Path(config).exists():
        raise ConfigError(unknown_name("config", config, METHODS.names()) + " A YAML file will do too.")
    run = load_config(config)  # says what is wrong with a file that is no text, or none at all
    return Path(config).read_text(encoding="utf-8"), run


def _project_name(folder: str) -> str:
    """Return the folder's name as Flower takes it: up to 32 letters, digits and hyphens, a letter first."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", folder).strip("-")
    return (name if name[:1].isalpha() else f"federation-{name}")[:32].strip("-")


def _render(template: str, **values: object) -> str:
    environment = Environment(
        loader=PackageLoader("widthwise.deploy"),
        autoescape=False,  # none of them is HTML
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(f"{template}.j2").render(**values)
