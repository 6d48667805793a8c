"""The script that copies a study's results to where they are kept."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from widthwise.core.errors import InputError
from widthwise.engine import load_run
from widthwise.studies import ManifestWriter, Study, plan

SCRIPT = Path(__file__).parents[2] / "docs" / "results" / "collect.py"
STUDY = Study(
    base={
        "task": {"dataset": "digits", "model": "cnn-small", "clients": 4, "partition": {"kind": "iid"}},
        "training": {"rounds": 12, "cohort": 2},
    },
    methods={"a": {"method.name": "heterofl"}},
    seeds=[1, 2, 3, 4],
)


@pytest.fixture
def collect() -> ModuleType:
    spec = importlib.util.spec_from_file_location("collect", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path: Path, make_run: Any) -> Path:
    """A study with a run that is finished, one half way, one that has begun and one that has not."""
    source = tmp_path / "source"
    for seed in (1, 2, 3):
        run = make_run("heterofl", folder=f"source/a-s{seed}", seed=seed, clients=4, finished=seed == 1)
        (run / "checkpoint").mkdir()
        (run / "checkpoint" / "round-000012.safetensors").write_bytes(b"x")
    for name in ("clients.parquet", "rounds.jsonl"):
        (run / name).unlink()
    with ManifestWriter(source, "tiny", None, STUDY, plan(STUDY, source), jobs=1):
        pass
    return source


def test_collect_copies_every_run_as_far_as_it_has_come(
    collect: ModuleType, source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "kept"
    page = collect.collect(source, target)
    text = page.read_text(encoding="utf-8")
    assert "1 of 4 planned runs finished" in text
    for seed, rounds in ((1, 12), (2, 6), (3, 0)):
        ours, theirs = (load_run(folder / f"a-s{seed}") for folder in (target, source))
        assert (ours.complete, len(ours.rounds)) == (seed == 1, rounds)
        pd.testing.assert_frame_equal(ours.clients, theirs.clients)
        pd.testing.assert_frame_equal(ours.rounds, theirs.rounds)
        assert (ours.config, ours.result) == (theirs.config, theirs.result)
    assert not list(target.rglob("*.safetensors"))
    assert not list((target / "a-s4").iterdir())


def test_collect_leaves_nothing_of_an_earlier_copy(
    collect: ModuleType, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "build_study_report", lambda folder: folder / "report.html")
    target = tmp_path / "kept"
    collect.collect(source, target)
    for name in ("result.json", "clients.parquet"):
        (source / "a-s1" / name).unlink()
    collect.collect(source, target)
    assert {file.name for file in (target / "a-s1").iterdir()} == {
        "config.yaml",
        "environment.json",
        "partition.json",
        "rounds.jsonl",
    }


def test_collect_refuses_a_folder_without_a_study_and_the_source_itself(
    collect: ModuleType, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"source is .*, but it holds no study\.json\. Name the folder of a"):
        collect.collect(tmp_path, tmp_path / "kept")
    before = {file: file.read_bytes() for file in source.rglob("*") if file.is_file()}
    with pytest.raises(InputError, match=r"target is .*, but that is the source\. Name another folder\."):
        collect.collect(source, source / "a-s1" / "..")
    assert {file: file.read_bytes() for file in source.rglob("*") if file.is_file()} == before


def test_collect_says_what_is_wrong_on_the_command_line(
    collect: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["collect.py", str(tmp_path), str(tmp_path / "kept")])
    with pytest.raises(SystemExit, match=r"error: source is .*, but it holds no study"):
        collect.main()
