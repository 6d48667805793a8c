"""The rooms of docs/architecture.md: who may import whom, read from the source, and how long files may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "widthwise"
FLOOR_1 = {
    "slicing",
    "allocation",
    "training",
    "aggregation",
    "compression",
    "heterogeneity",
    "privacy",
    "tasks",
}
BELOW_ENGINE = {"core", "methods"} | FLOOR_1
ROOMS: dict[str, set[str]] = {
    "core": set(),
    **{room: {"core"} for room in FLOOR_1},
    "methods": {"core"} | FLOOR_1,
    "engine": BELOW_ENGINE,
    "audit": {"core", "heterogeneity", "engine.runs"},
    "studies": BELOW_ENGINE | {"engine"},
    "deploy": BELOW_ENGINE | {"engine", "studies"},
    "report": {"core", "engine.runs", "audit", "studies"},
    "ship": BELOW_ENGINE | {"engine", "studies"},
}
MAX_LINES = 400
#: File (relative to the package) -> why it may be longer.
LONG_FILES: dict[str, str] = {}

Edge = tuple[str, str, str]


def edges(source: str, room: str, where: str) -> Iterator[Edge]:
    """Yield (room, imported module without the package's name, place) for each import of another room."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            # "from widthwise import audit" names the room in the alias, not in the module.
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = modules if node.module == "widthwise" else [node.module or ""]
            assert node.level == 0, f"{where}:{node.lineno}: relative import; write the full name"
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            head, _, rest = module.partition(".")
            if head == "widthwise" and rest.split(".")[0] != room:
                yield room, rest, f"{where}:{node.lineno}"


def forbidden(found: list[Edge]) -> list[str]:
    """Return a line for each edge that is not in ``ROOMS``."""
    lines = []
    for room, module, place in found:
        allowed = ROOMS[room]
        if not any(module == known or module.startswith(f"{known}.") for known in allowed):
            names = ", ".join(sorted(allowed)) or "nothing"
            lines.append(f"{place}: {room} imports {module or 'widthwise'}, but may import only {names}")
    return lines


@pytest.fixture(scope="module")
def package_edges() -> list[Edge]:
    found: list[Edge] = []
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            found += edges(path.read_text(encoding="utf-8"), room, str(path.relative_to(PACKAGE)))
    return found


def test_package_has_no_room_that_is_not_in_the_table():
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert rooms == set(ROOMS)


def test_rooms_import_only_what_the_table_allows(package_edges):
    assert package_edges, "no imports between rooms were found: is the parser looking at the right folder?"
    assert forbidden(package_edges) == []


def test_rooms_never_import_each_other_both_ways(package_edges):
    pairs = {(room, module.split(".")[0]) for room, module, _ in package_edges}
    assert sorted((a, b) for a, b in pairs if (b, a) in pairs and a < b) == []


def test_package_modules_on_top_are_the_api_and_the_command_line():
    names = {path.stem for path in PACKAGE.glob("*.py")}
    assert {name for name in names if name != "__init__" and not name.startswith("cli")} <= {"__main__"}


def test_files_stay_short_or_give_a_reason():
    lengths = {
        str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines())
        for path in PACKAGE.rglob("*.py")
    }
    long = {name for name, length in lengths.items() if length > MAX_LINES}
    assert long == set(LONG_FILES)


@pytest.mark.parametrize(
    ("source", "room", "expected"),
    [
        ("import widthwise.engine.loop", "audit", ["audit imports engine.loop"]),
        ("from widthwise.engine import load_run", "audit", ["audit imports engine,"]),
        ("from widthwise import studies", "audit", ["audit imports studies"]),
        ("import widthwise", "core", ["core imports widthwise"]),
        ("def f():\n    from widthwise.tasks import x", "slicing", ["slicing imports tasks"]),
        ("from widthwise.engine.runs import load_run\nimport numpy", "audit", []),
        ("from widthwise.core.errors import InputError", "core", []),
        ("from widthwise.engine_room import x", "studies", ["studies imports engine_room"]),
    ],
)
def test_forbidden_finds_the_edges_that_the_table_lacks(source, room, expected):
    lines = forbidden(list(edges(source, room, "file.py")))
    assert len(lines) == len(expected)
    assert all(part in line for part, line in zip(expected, lines, strict=True))


def test_edges_refuses_relative_imports():
    with pytest.raises(AssertionError, match=r"file\.py:1: relative import"):
        list(edges("from . import table", "audit", "file.py"))
