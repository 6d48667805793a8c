"""The pages of the documentation against the code."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import widthwise as ww
from widthwise.audit import audit_csv
from widthwise.cli import app
from widthwise.compression import COMPRESSIONS
from widthwise.engine import DeployConfig, EngineConfig
from widthwise.engine.runs import CLIENT_COLUMNS, PARTITION_KEYS, RESULT_KEYS, ROUND_COLUMNS
from widthwise.methods import METHODS, PARTS
from widthwise.privacy import PrivacyConfig
from widthwise.studies import Study, load_config, load_study, plan
from widthwise.studies.config import FREE_KEYS
from widthwise.tasks import CapacityConfig, TaskConfig
from widthwise.training import TrainingConfig

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "section", [TaskConfig, CapacityConfig, TrainingConfig, EngineConfig, PrivacyConfig, DeployConfig]
)
def test_configuration_page_lists_every_key(section: type) -> None:
    listed = set(re.findall(r"^\| `(\w+)`", page("docs/configuration.md"), re.M))
    assert set(section.model_fields) <= listed


def test_configuration_page_lists_every_option_of_every_part_with_its_part() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (?:policy |objective |selector )?([\w-]+(?:, [\w-]+)*) \|",
        page("docs/configuration.md"),
        re.M,
    )
    listed = {
        option: [owner for key, owners in rows if key == option for owner in owners.split(", ")]
        for option, _ in rows
    }
    for registry in PARTS.values():
        for entry in registry:
            for option in entry.value.model_fields:
                assert {entry.name, "estimators"} & set(listed.get(option, [])), (entry.name, option)


def test_configuration_page_lists_every_kind_of_compression_and_its_options() -> None:
    text = page("docs/configuration.md")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text[text.index("## compression") :], re.M)
    for entry in COMPRESSIONS:
        assert entry.name in [name for name, _ in rows]
        for option in set(entry.value.model_fields) - {"kind"}:
            assert entry.name in dict(rows)[option].split(", ")


def test_configuration_page_marks_the_keys_that_change_no_result() -> None:
    marked = set(re.findall(r"^\| `(\w+)` \* ", page("docs/configuration.md"), re.M))
    assert marked == FREE_KEYS["engine"]


@pytest.mark.parametrize("keys", [ROUND_COLUMNS, CLIENT_COLUMNS, PARTITION_KEYS, RESULT_KEYS])
def test_run_folder_page_names_every_field(keys: tuple[str, ...]) -> None:
    assert set(keys) <= set(re.findall(r"`(\w+)`", page("docs/run-folder.md")))


def test_methods_page_states_the_parts_of_every_method() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| ([\w-]+) \| ([\w-]+) \|", page("docs/methods.md"), re.M)
    assert rows == [(e.name, e.value.policy, e.value.objective) for e in METHODS]


def test_readme_shows_the_example_that_it_runs() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", page("README.md"), re.S)
    assert yaml.safe_load(shown) == yaml.safe_load(page("examples/digits-hasfl.yaml"))


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        *(f"docs/{page}.md" for page in ("quickstart", "audit", "studies", "capacity", "shipping", "deploy")),
    ],
)
def test_commands_on_the_pages_exist_and_their_files_too(name: str) -> None:
    known = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    } | {group.name for group in app.registered_groups}
    shown = re.findall(r"^\$ widthwise (\w+)(.*)$", page(name), re.M)
    assert shown
    for command, rest in shown:
        assert command in known
        for file in re.findall(r"examples/[\w./-]+", rest):
            read = {"study": load_study, "audit": lambda path: audit_csv(Path(path))}.get(
                command, load_config
            )
            read(str(ROOT / file))


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in DOCS.glob("*.md"))]
)
def test_links_on_the_pages_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page(name)):
        assert ((ROOT / name).parent / target).exists(), target


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *DOCS.glob("*.md")], ids=lambda path: path.name)
def test_pages_hold_no_half_merged_lines(path: Path) -> None:
    assert not re.findall(r"^(?:<{7} |={7}$|>{7} ).*", path.read_text(encoding="utf-8"), re.M)


def test_quickstart_study_is_valid(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", page("docs/quickstart.md"), re.S)
    planned = plan(Study(**yaml.safe_load(shown)), tmp_path)
    assert len(planned) == 4 * 3


def test_studies_page_shows_a_valid_study(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", page("docs/studies.md"), re.S)
    content = Study(**yaml.safe_load(shown))
    assert len(plan(content, tmp_path)) == (4 + 2) * 3 * 2
    assert "quick" in content.profiles


def test_methods_page_combinations_are_valid() -> None:
    shown = re.findall(r"```yaml\n(.*?)```", page("docs/methods.md"), re.S)
    base = yaml.safe_load(page("examples/digits-hasfl.yaml")) | {"training": {"momentum": 0.0}}
    assert len(shown) == 2
    for line in "".join(shown).splitlines():
        ww.RunConfig(**{**base, **yaml.safe_load(line)})


def test_readme_python_example_runs() -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", page("README.md"), re.S)
    done = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("torch.Size([2, 4]) [(16, 8), (16,), (4, 16), (4,)]")


def test_make_targets_on_the_readme_exist() -> None:
    targets = set(re.findall(r"^(\w+):", page("Makefile"), re.M))
    assert {"demo", "test", "lint", "bench", "clean"} <= targets
    assert set(re.findall(r"^\$ make (\w+)", page("README.md"), re.M)) <= targets


def test_citation_is_yaml_and_names_the_version() -> None:
    assert yaml.safe_load(page("CITATION.cff"))["version"] == ww.__version__


@pytest.mark.parametrize("page", [DOCS / "results" / "small" / "README.md", DOCS.parent / "README.md"])
def test_pages_quote_the_headline_table_of_the_small_study(page: Path) -> None:
    with (DOCS / "results" / "small" / "tables" / "headline.csv").open(encoding="utf-8", newline="") as file:
        stored = list(csv.DictReader(file))
    tasks = list(dict.fromkeys(row["task"] for row in stored))
    text = page.read_text(encoding="utf-8")
    head, *lines = re.findall(r"^\| (.*) \|$", text[text.index("| method | CIFAR-10") :], re.M)
    assert head.split(" | ")[1:] == tasks
    shown = {line.split(" | ")[0]: line.split(" | ")[1:] for line in lines}
    assert {"hasfl", "hasfl-control", "fedavg"} <= set(shown) <= {row["method"] for row in stored}
    for row in stored:
        if row["method"] not in shown:
            assert page.parent == DOCS.parent, "only the README leaves methods out"
            continue
        cell = shown[row["method"]][tasks.index(row["task"])]
        if not int(row["n"] or 0):
            assert cell == "–"
            continue
        spread = f" ± {float(row['final_sd']):.1f}" if row["final_sd"] else ""
        count = "" if row["n"] == "3" else f" (n = {row['n']})"
        assert cell == f"{float(row['final_mean']):.1f}{spread} / {float(row['mean_width']):.2f}{count}"
