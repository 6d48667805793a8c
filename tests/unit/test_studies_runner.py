"""The order in which a study's runs are started, and what becomes of them; nothing is trained."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from widthwise.core.errors import CheckpointError, InputError
from widthwise.engine import load_run
from widthwise.studies import (
    Ended,
    ManifestWriter,
    PlannedRun,
    Study,
    plan,
    read_manifest,
    run_study,
)

BASE = {
    "task": {"dataset": "digits", "model": "mlp", "clients": 4, "partition": {"kind": "iid"}},
    "training": {"rounds": 2, "cohort": 2},
}
MATCHED = {
    "a": {"method.name": "heterofl"},
    "control": {"method": {"name": "random-budget", "matched_to": "a"}},
}


def study(**content: Any) -> Study:
    return Study(**{"base": BASE, "methods": {"a": {"method.name": "heterofl"}}, **content})


class FakePool:
    """Writes run folders as the engine does, without training; ends one run at each call of ``events``."""

    def __init__(self, make_run: Any, out: Path, fails: tuple[str, ...] = (), jobs: int = 1) -> None:
        self.make_run, self.out, self.fails, self.jobs = make_run, out, fails, jobs
        self.started: list[str] = []
        self.running: list[PlannedRun] = []
        self.most = 0

    @property
    def free(self) -> int:
        return self.jobs - len(self.running)

    def submit(self, run: PlannedRun) -> None:
        self.started.append(run.path.name)
        self.running.append(run)
        self.most = max(self.most, len(self.running))

    def events(self) -> Iterator[Ended]:
        run = self.running.pop(0)
        if run.path.name in self.fails:
            yield Ended(run.path, "it broke")
            return
        if not run.path.exists():
            folder = run.path.relative_to(self.out.parent).as_posix()
            self.make_run(folder=folder, seed=run.config.seed, rounds=run.config.training.rounds)
            (run.path / "config.yaml").write_text(yaml.safe_dump(run.config.to_dict()))
        result = json.loads((run.path / "result.json").read_text())
        (run.path / "result.json").write_text(json.dumps({**result, "config_hash": run.config.hash()}))
        yield Ended(run.path)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_run_study_skips_finished_runs_and_goes_on_with_broken_ones(out: Path, make_run: Any) -> None:
    planned = plan(study(seeds=[1, 2]), out)
    pool = FakePool(make_run, out)
    assert [o.state for o in run_study(planned[:1], pool)] == ["done"]
    make_run(folder="out/a-s2", seed=2, rounds=2)
    states = {o.planned.path.name: o.state for o in run_study(planned, pool)}
    assert states == {"a-s1": "skipped", "a-s2": "done"}
    assert pool.started == ["a-s1", "a-s2"]


def test_run_study_starts_again_when_the_configuration_changed(out: Path, make_run: Any) -> None:
    pool = FakePool(make_run, out)
    list(run_study(plan(study(), out), pool))
    changed = plan(study(base={**BASE, "training": {"rounds": 3, "cohort": 2}}), out)
    list(run_study(changed, pool))
    assert pool.started == ["a-s42", "a-s42"]


def test_run_study_goes_on_after_a_failure(out: Path, make_run: Any) -> None:
    planned = plan(study(seeds=[1, 2, 3]), out)
    outcomes = list(run_study(planned, FakePool(make_run, out, fails=("a-s2",))))
    assert [outcome.state for outcome in outcomes] == ["done", "failed", "done"]
    assert outcomes[1].error == "it broke"


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_run_study_fills_the_pool_and_no_more(out: Path, make_run: Any, jobs: int) -> None:
    pool = FakePool(make_run, out, jobs=jobs)
    outcomes = list(run_study(plan(study(seeds=[1, 2, 3]), out), pool))
    assert [outcome.state for outcome in outcomes] == ["done"] * 3
    assert pool.most == min(jobs, 3)


def test_run_study_starts_a_matched_run_when_its_source_is_done(out: Path, make_run: Any) -> None:
    pool = FakePool(make_run, out, jobs=4)
    outcomes = list(run_study(plan(study(methods=MATCHED, seeds=[1, 2]), out), pool))
    assert pool.started == ["a-s1", "a-s2", "control-s1", "control-s2"]
    widths = load_run(out / "a-s2").rounds["mean_width"].tolist()
    method = outcomes[-1].planned.config.method
    assert method["targets"] == pytest.approx(widths)


def test_run_study_fails_a_matched_run_whose_source_failed(out: Path, make_run: Any) -> None:
    planned = plan(study(methods=MATCHED), out)
    outcomes = list(run_study(planned, FakePool(make_run, out, fails=("a-s42",))))
    assert [outcome.state for outcome in outcomes] == ["failed", "failed"]
    assert outcomes[1].error == "the run it is matched to failed: it broke"


def test_resolve_refuses_a_source_with_fewer_rounds(out: Path, make_run: Any) -> None:
    make_run(folder="out/a-s42", rounds=1)
    (run, control) = plan(study(methods=MATCHED), out)
    (run.path / "config.yaml").write_text(yaml.safe_dump(run.config.to_dict()))
    (outcome,) = run_study([control], FakePool(make_run, out))
    assert re.search(r"that run has 1 rounds and this one 2\. Finish that run", str(outcome.error))


def test_manifest_lists_all_runs_and_adds_up_sessions(out: Path, make_run: Any) -> None:
    content = study(seeds=[1, 2], tasks={"x": {"title": "X"}})
    planned = plan(content, out)
    for fails in (("a-s2",), ()):
        with ManifestWriter(out, "tiny", "small", content, planned, jobs=2) as writer:
            for outcome in run_study(planned, FakePool(make_run, out, fails=fails)):
                writer.add(outcome)
        manifest = read_manifest(out)
        assert manifest is not None
        assert [(run.path, run.seed) for run in manifest.runs] == [("x/a-s1", 1), ("x/a-s2", 2)]
        assert [run.error for run in manifest.runs] == [None, "it broke" if fails else None]
    assert manifest.study == content
    assert (manifest.name, manifest.profile) == ("tiny", "small")
    assert [session["runs_done"] for session in manifest.sessions] == [1, 1]
    assert all(session["jobs"] == 2 for session in manifest.sessions)
    assert {"command", "commit", "packages"} <= set(manifest.sessions[0]["environment"])


def test_manifest_that_is_damaged_is_named_and_made_anew(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    (tmp_path / "study.json").write_text('{"name": "tiny"}')
    with pytest.raises(
        CheckpointError, match=r"study\.json in .* is damaged .* Run the study again: finished"
    ):
        read_manifest(tmp_path)
    with ManifestWriter(tmp_path, "tiny", None, study(), plan(study(), tmp_path), jobs=1):
        assert read_manifest(tmp_path) is not None


def test_manifest_has_one_writer_at_a_time(tmp_path: Path) -> None:
    arguments = ("tiny", None, study(), plan(study(), tmp_path))
    with ManifestWriter(tmp_path, *arguments, jobs=1):
        second = ManifestWriter(tmp_path, *arguments, jobs=1)
        with pytest.raises(
            CheckpointError, match=r"folder of the study is .*, but another process is writing"
        ):
            second.__enter__()
    with second:  # free again
        assert read_manifest(tmp_path) is not None


def test_manifest_refuses_the_folder_of_a_run_and_one_that_cannot_be(tmp_path: Path, make_run: Any) -> None:
    run = make_run(folder="run")
    with pytest.raises(CheckpointError, match=r"but that is the folder of a run\. Choose another --out"):
        ManifestWriter(run, "tiny", None, study(), plan(study(), run), jobs=1)
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        writer = ManifestWriter(folder, "tiny", None, study(), plan(study(), folder), jobs=1)
        with pytest.raises(InputError, match="cannot be written"):
            writer.__enter__()
