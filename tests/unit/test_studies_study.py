from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from widthwise.core.errors import ConfigError, RunError
from widthwise.engine.runs import RunResult, load_run
from widthwise.studies import PlannedRun, Study, bundled_studies, load_study, plan, run_study

STUDIES = Path(__file__).parents[2] / "examples" / "studies"
BASE = {
    "task": {"dataset": "digits", "model": "mlp", "clients": 4, "partition": {"kind": "iid"}},
    "training": {"rounds": 2, "cohort": 2},
}


def study(**content: Any) -> Study:
    return Study(**{"base": BASE, "methods": {"a": {"method.name": "heterofl"}}, **content})


class FakeEngine:
    """Writes run folders as the engine does, without training."""

    def __init__(self, make_run: Any, fails: tuple[str, ...] = ()) -> None:
        self.make_run, self.fails = make_run, fails
        self.started: list[tuple[str, bool]] = []

    def __call__(self, run: PlannedRun, resume: bool) -> RunResult:
        self.started.append((run.path.name, resume))
        if run.path.name in self.fails:
            raise RunError("it broke", client=3, round_index=1, stage="train")
        if not run.path.exists():
            self.make_run(
                folder=f"out/{run.path.name}", seed=run.config.seed, rounds=run.config.training.rounds
            )
        result = json.loads((run.path / "result.json").read_text())
        (run.path / "result.json").write_text(json.dumps({**result, "config_hash": run.config.hash()}))
        return load_run(run.path)


def test_plan_has_one_run_for_each_label_and_seed(tmp_path: Path) -> None:
    methods = {"a": {"method.name": "heterofl"}, "b": {"method": {"name": "uniform", "width": 0.25}}}
    planned = plan(study(methods=methods, seeds=[1, 2]), tmp_path)
    assert [run.path.name for run in planned] == ["a-s1", "a-s2", "b-s1", "b-s2"]
    assert [run.config.seed for run in planned] == [1, 2, 1, 2]
    assert planned[2].config.method["width"] == 0.25


def test_plan_sweeps_every_combination(tmp_path: Path) -> None:
    sweep = {"training.lr": [0.1, 0.2], "training.momentum": [0.0, 0.5]}
    planned = plan(study(sweep=sweep), tmp_path)
    assert [run.label for run in planned] == [
        "a-lr=0.1-momentum=0.0",
        "a-lr=0.1-momentum=0.5",
        "a-lr=0.2-momentum=0.0",
        "a-lr=0.2-momentum=0.5",
    ]
    assert [(r.config.training.lr, r.config.training.momentum) for r in planned][1] == (0.1, 0.5)


def test_plan_puts_matched_runs_last_and_points_them_to_their_seed(tmp_path: Path) -> None:
    methods = {
        "control": {"method": {"name": "random-budget", "matched_to": "a"}},
        "a": {"method.name": "heterofl"},
    }
    planned = plan(study(methods=methods, seeds=[1, 2]), tmp_path)
    assert [run.path.name for run in planned] == ["a-s1", "a-s2", "control-s1", "control-s2"]
    assert planned[3].config.method["matched_to"] == str(tmp_path / "a-s2")


def test_plan_lists_the_problems_of_all_labels(tmp_path: Path) -> None:
    methods = {
        "a": {"method.name": "hetero"},
        "b": {"method.name": "heterofl"},
        "c": {"method.name": "heterofl", "training.cohort": 9},
    }
    with pytest.raises(ConfigError) as caught:
        plan(study(methods=methods, seeds=[1, 2]), tmp_path)
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == ["a", "c"]


def test_run_study_skips_finished_runs_and_resumes_broken_ones(tmp_path: Path, make_run: Any) -> None:
    planned = plan(study(seeds=[1, 2]), tmp_path / "out")
    engine = FakeEngine(make_run)
    assert [o.state for o in run_study(planned[:1], engine)] == ["done"]
    make_run(folder="out/a-s2", seed=2, rounds=2)
    states = [outcome.state for outcome in run_study(planned, engine)]
    assert states == ["skipped", "done"]
    assert engine.started == [("a-s1", False), ("a-s2", True)]


def test_run_study_starts_again_when_the_configuration_changed(tmp_path: Path, make_run: Any) -> None:
    engine = FakeEngine(make_run)
    list(run_study(plan(study(), tmp_path / "out"), engine))
    changed = plan(study(base={**BASE, "training": {"rounds": 3, "cohort": 2}}), tmp_path / "out")
    list(run_study(changed, engine))
    assert engine.started == [("a-s42", False), ("a-s42", True)]


def test_run_study_goes_on_after_a_failure(tmp_path: Path, make_run: Any) -> None:
    planned = plan(study(seeds=[1, 2, 3]), tmp_path / "out")
    outcomes = list(run_study(planned, FakeEngine(make_run, fails=("a-s2",))))
    assert [outcome.state for outcome in outcomes] == ["done", "failed", "done"]
    assert str(outcomes[1].error) == "client 3, round 1, stage train: it broke"


def test_run_study_fills_the_targets_of_a_matched_run(tmp_path: Path, make_run: Any) -> None:
    methods = {
        "a": {"method.name": "heterofl"},
        "control": {"method": {"name": "random-budget", "matched_to": "a"}},
    }
    planned = plan(study(methods=methods), tmp_path / "out")
    outcomes = list(run_study(planned, FakeEngine(make_run)))
    widths = load_run(tmp_path / "out" / "a-s42").rounds["mean_width"].tolist()
    method = outcomes[1].planned.config.method
    assert method["targets"] == widths
    assert method["matched_to"] is None


def test_run_study_fails_a_matched_run_whose_source_failed(tmp_path: Path, make_run: Any) -> None:
    methods = {
        "a": {"method.name": "heterofl"},
        "control": {"method": {"name": "random-budget", "matched_to": "a"}},
    }
    planned = plan(study(methods=methods), tmp_path / "out")
    outcomes = list(run_study(planned, FakeEngine(make_run, fails=("a-s42",))))
    assert [outcome.state for outcome in outcomes] == ["failed", "failed"]
    assert "holds no config.yaml" in str(outcomes[1].error)


def test_resolve_refuses_a_source_with_fewer_rounds(tmp_path: Path, make_run: Any) -> None:
    source = make_run(folder="short", rounds=2)
    method = {"name": "random-budget", "matched_to": str(source)}
    planned = plan(study(methods={"c": {"method": method}}, base={**BASE, "training.rounds": 3}), tmp_path)
    (outcome,) = run_study(planned, FakeEngine(make_run))
    assert re.search(r"that run has 2 rounds and this one 3\. Finish that run", str(outcome.error))


@pytest.mark.parametrize("name", bundled_studies())
@pytest.mark.parametrize("profile", [None, "small", "paper"])
def test_bundled_studies_are_valid_in_every_profile(name: str, profile: str | None, tmp_path: Path) -> None:
    planned = plan(load_study(name, profile), tmp_path)
    assert len({run.path for run in planned}) == len(planned) >= 5


@pytest.mark.parametrize("file", sorted(STUDIES.glob("*.yaml")), ids=lambda file: file.stem)
def test_example_studies_are_valid(file: Path, tmp_path: Path) -> None:
    assert plan(load_study(str(file)), tmp_path)


def test_load_study_reads_a_file_and_replaces_seeds(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump({"base": BASE, "methods": {"a": {"method.name": "fedavg"}}}))
    assert load_study(str(file), seeds=[7]).seeds == [7]


def test_load_study_names_the_bundled_ones_when_the_name_is_unknown() -> None:
    with pytest.raises(ConfigError, match=r"study is 'digit', but .* Did you mean 'digits'\?"):
        load_study("digit")


def test_load_study_names_the_profiles_when_the_profile_is_unknown() -> None:
    with pytest.raises(ConfigError, match=r"profile is 'papers', but .* Did you mean 'paper'\?"):
        load_study("digits", "papers")


def test_load_study_refuses_unknown_keys(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump({"base": BASE, "method": {}}))
    with pytest.raises(ConfigError) as caught:
        load_study(str(file))
    assert "methods is missing, but it is required. Add it." in str(caught.value)
    assert "method is {}, but there is no such key. Did you mean 'methods'?" in str(caught.value)
