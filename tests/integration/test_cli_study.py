"""What ``widthwise study`` does beside training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from widthwise.cli import app
from widthwise.engine.files import FolderLock
from widthwise.studies import bundled_studies, load_study

EXAMPLES = Path(__file__).parents[2] / "examples" / "studies"


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("name", bundled_studies())
def test_study_prints_its_file_with_comments_to_be_copied(name: str, tmp_path: Path) -> None:
    printed = call("study", name, "--print")
    assert printed.exit_code == 0
    assert printed.stdout.startswith("# ")
    copy = tmp_path / "mine.yaml"
    copy.write_text(printed.stdout)
    assert load_study(str(copy)) == load_study(name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "small"], "leave --profile, --seeds and --dry-run out"),
        (["--seeds", "1"], "leave --profile, --seeds and --dry-run out"),
        (["--dry-run"], "leave --profile, --seeds and --dry-run out"),
    ],
)
def test_study_refuses_to_print_what_is_in_no_file(arguments: list[str], message: str) -> None:
    result = call("study", "paper", "--print", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert result.stdout == ""


def test_study_exits_with_2_when_another_process_runs_it(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path, "folder")
    lock.acquire()
    result = call("study", "digits", "--out", tmp_path)
    lock.release()
    assert result.exit_code == 2
    assert f"folder of the study is {str(tmp_path)!r}, but another process is writing there" in result.stderr
    assert not (tmp_path / "study.json").exists()


def keys(content: Mapping[str, Any], place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key."""
    for key, value in content.items():
        yield (*place, key)
        if isinstance(value, dict):
            yield from keys(value, (*place, key))


def described(schema: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Return whether a schema knows a path of keys."""

    def follow(part: Any, rest: tuple[str, ...]) -> bool:
        if part is True or (isinstance(part, dict) and "$ref" in part):
            part = {} if part is True else schema["$defs"][part["$ref"].rpartition("/")[2]]
        if not rest:
            return True
        below = part.get("properties", {}).get(rest[0], part.get("additionalProperties", False))
        return follow(below, rest[1:]) if below is not False else any_of(part, rest)

    def any_of(part: Any, rest: tuple[str, ...]) -> bool:
        return any(follow(choice, rest) for choice in part.get("anyOf", []))

    return follow(schema, path)


@pytest.mark.parametrize("name", [*bundled_studies(), *map(str, sorted(EXAMPLES.glob("*.yaml")))])
def test_schema_of_a_study_knows_every_key_that_studies_use(name: str) -> None:
    schema = json.loads(call("schema", "study").stdout)
    content = yaml.safe_load(call("study", name, "--print").stdout)
    assert [path for path in keys(content) if not described(schema, path)] == []


@pytest.mark.parametrize(
    "path",
    [
        ("sweeps",),
        ("base", "trainin"),
        ("base", "training", "lrr"),
        ("methods", "a", "task", "datset"),
        ("tasks", "x", "method"),
        ("tasks", "x", "changes", "a", "training", "lrr"),
        ("profiles", "small", "seed"),
    ],
)
def test_schema_of_a_study_knows_no_other_keys(path: tuple[str, ...]) -> None:
    assert not described(json.loads(call("schema", "study").stdout), path)
