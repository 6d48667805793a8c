"""The project that ``widthwise deploy init`` writes: what is in it, what travels, and what is refused."""

from __future__ import annotations

import re
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate
from typer.testing import CliRunner

from widthwise.cli import app
from widthwise.methods import METHODS
from widthwise.studies import load_config

ROOT = Path(__file__).parents[2]


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["deploy", *(str(argument) for argument in arguments)])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / 'My 1st "federation"'
    result = call("init", folder, "--host", "server.example.org")
    assert result.exit_code == 0, result.output
    return folder


def test_flower_finds_nothing_to_complain_of(project: Path) -> None:
    config, warnings = load_and_validate(project / "pyproject.toml")
    assert warnings == []
    assert config["project"]["name"] == "My-1st-federation"


# Flower uses a name of pathspec that pathspec has given up.
@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
def test_keys_stay_at_home(project: Path) -> None:
    with zipfile.ZipFile(BytesIO(build_fab_from_disk(project))) as bundle:
        travelling = set(bundle.namelist())
    assert travelling == {
        "pyproject.toml",
        ".info/CONTENT",
        *(f"federation/{name}" for name in ("__init__.py", "server_app.py", "client_app.py", "run.yaml")),
    }
    assert {path.name for path in (project / "keys").iterdir()} >= {"ca.key", "server.key", "node-3"}


def test_readme_starts_every_node_with_the_capacity_of_the_run(project: Path) -> None:
    run = load_config(project / "federation" / "run.yaml")
    assert run.capacity.list is not None
    text = (project / "README.md").read_text()
    for node, capacity in enumerate(run.capacity.list):
        assert f"'partition-id={node} capacity={capacity}'" in text
        assert f"keys/node-{node}.pub deployment" in text


def test_connections_name_the_certificate_by_an_absolute_path(project: Path) -> None:
    connections = tomllib.loads((project / ".flwr" / "config.toml").read_text())["superlink"]
    assert connections["deployment"]["root-certificates"] == str(project / "keys" / "ca.crt")
    assert connections["simulation"] == {"address": ":local:"}


def test_a_file_is_copied_as_it_is(tmp_path: Path) -> None:
    file = ROOT / "examples" / "digits-heterofl.yaml"
    assert call("init", tmp_path / "p", "--config", file).exit_code == 0
    assert (tmp_path / "p" / "federation" / "run.yaml").read_text() == file.read_text()
    assert len(list((tmp_path / "p" / "keys").glob("node-*.pub"))) == load_config(file).task.clients


@pytest.mark.parametrize("method", [entry.name for entry in METHODS])
def test_every_method_gives_a_project_or_says_what_it_needs(tmp_path: Path, method: str) -> None:
    result = call("init", tmp_path / "p", "--config", method)
    if result.exit_code == 0:
        assert load_config(tmp_path / "p" / "federation" / "run.yaml").method["name"] == method
    else:
        assert method == "random-budget"
        assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])


def test_an_empty_folder_is_filled_and_stays_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = tmp_path.stat().st_ino
    assert call("init", ".").exit_code == 0
    assert (tmp_path / "README.md").is_file()
    assert tmp_path.stat().st_ino == before


@pytest.mark.parametrize("new", [True, False])
def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: bool) -> None:
    folder = tmp_path / "p"
    if not new:
        folder.mkdir()
    left = iter(range(4))
    really = Path.write_text

    def full(self: Path, *arguments: Any, **options: Any) -> int:
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        return really(self, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", full)
    result = call("init", folder)
    assert result.exit_code == 2
    assert "cannot be written (No space left on device)" in result.stderr
    assert folder.exists() != new
    assert not new or list(tmp_path.iterdir()) == []
    assert new or list(folder.iterdir()) == []


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    result = call("init", tmp_path)
    assert result.exit_code == 2
    assert "needs an empty one" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "hasfll"], r"config is 'hasfll', but .* Did you mean 'hasfl'"),
        (["--config", "no-such.yaml"], "config is 'no-such.yaml', but"),
        (["--host", "a b"], "host is 'a b', but it is neither a name nor an address"),
    ],
)
def test_bad_input_is_one_message_and_nothing_written(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = call("init", tmp_path / "p", *arguments)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert re.search(message, result.stderr)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(yaml.safe_dump({"task": {"dataset": "digits"}, "colour": "red"}))
    result = call("init", tmp_path / "p", "--config", file)
    assert result.exit_code == 2
    assert "colour" in result.stderr
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_config_that_is_no_text_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "odd.yaml"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    result = call("init", tmp_path / "p", "--config", file)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: configuration is '{file}', but")
    assert not (tmp_path / "p").exists()


def test_keys_adds_nodes_and_says_so(project: Path) -> None:
    before = {path.name: path.read_bytes() for path in (project / "keys").iterdir()}
    result = call("keys", project, "--nodes", 6)
    assert result.exit_code == 0
    assert sorted(Path(line.split(": ")[1]).name for line in result.stderr.splitlines()) == [
        "node-4",
        "node-4.pub",
        "node-5",
        "node-5.pub",
    ]
    assert {name: (project / "keys" / name).read_bytes() for name in before} == before
    assert "already" in call("keys", project, "--nodes", 6).stderr


def test_keys_of_no_project_is_refused(tmp_path: Path) -> None:
    result = call("keys", tmp_path)
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []
