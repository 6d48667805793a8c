from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from widthwise.core.errors import ConfigError
from widthwise.studies import Study, bundled_studies, load_study, plan

STUDIES = Path(__file__).parents[2] / "examples" / "studies"
BASE = {
    "task": {"dataset": "digits", "model": "mlp", "clients": 4, "partition": {"kind": "iid"}},
    "training": {"rounds": 2, "cohort": 2},
}


def study(**content: Any) -> Study:
    return Study(**{"base": BASE, "methods": {"a": {"method.name": "heterofl"}}, **content})


def test_plan_has_one_run_for_each_label_and_seed(tmp_path: Path) -> None:
    methods = {"a": {"method.name": "heterofl"}, "b": {"method": {"name": "uniform", "width": 0.25}}}
    planned = plan(study(methods=methods, seeds=[1, 2]), tmp_path)
    assert [run.path.name for run in planned] == ["a-s1", "b-s1", "a-s2", "b-s2"]
    assert [run.config.seed for run in planned] == [1, 1, 2, 2]
    assert planned[1].config.method["width"] == 0.25


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


def test_plan_puts_every_method_on_every_task(tmp_path: Path) -> None:
    tasks = {
        "x": {"base": {"training.rounds": 3}, "changes": {"b": {"training.lr": 0.5}}},
        "y": {"base": {"task.clients": 5}, "methods": ["b"]},
        "z": None,
    }
    methods = {"a": {"method.name": "heterofl"}, "b": {"method.name": "uniform", "training.lr": 0.1}}
    planned = plan(study(tasks=tasks, methods=methods), tmp_path)
    assert [run.path.relative_to(tmp_path).as_posix() for run in planned] == ["x/a-s42", "x/b-s42", "y/b-s42"]
    assert [(run.task, run.label) for run in planned] == [("x", "a"), ("x", "b"), ("y", "b")]
    assert [run.config.training.rounds for run in planned] == [3, 3, 2]
    assert [run.config.training.lr for run in planned] == [0.01, 0.5, 0.1]
    assert [run.config.task.clients for run in planned] == [4, 4, 5]


def test_plan_matches_within_a_task(tmp_path: Path) -> None:
    methods = {
        "a": {"method.name": "heterofl"},
        "control": {"method": {"name": "random-budget", "matched_to": "a"}},
    }
    planned = plan(study(tasks={"x": {}, "y": {}}, methods=methods, sweep={"training.lr": [0.1]}), tmp_path)
    sources = [str(run.source and run.source.relative_to(tmp_path)) for run in planned]
    assert sources == ["None", "x/a-lr=0.1-s42", "None", "y/a-lr=0.1-s42"]


def test_plan_refuses_runs_that_are_matched_in_a_circle(tmp_path: Path) -> None:
    methods = {
        "a": {"method": {"name": "random-budget", "matched_to": "b"}},
        "b": {"method": {"name": "random-budget", "matched_to": "a"}},
    }
    with pytest.raises(ConfigError, match="a: matched_to goes round in a circle, but a run can be matched"):
        plan(study(methods=methods), tmp_path)


@pytest.mark.parametrize("label", ["a/b", "..", ".", "v1.0", "", "a b"])
def test_study_refuses_labels_that_name_no_folder(label: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"label is {label!r}, but it names a folder: letters")):
        study(methods={label: {}})
    with pytest.raises(ValueError, match=re.escape(f"label is {label!r}, but it names a folder: letters")):
        study(tasks={label: {}})


def test_study_refuses_unknown_names() -> None:
    with pytest.raises(ValueError, match=r"tasks\.x\.methods is 'b', but no such name is known"):
        study(tasks={"x": {"methods": ["b"]}})
    with pytest.raises(ValueError, match=r"tasks\.x\.changes is 'b', but no such name is known"):
        study(tasks={"x": {"changes": {"b": {}}}})


def test_plan_puts_matched_runs_after_their_source_and_points_them_to_their_seed(tmp_path: Path) -> None:
    methods = {
        "control": {"method": {"name": "random-budget", "matched_to": "a"}},
        "a": {"method.name": "heterofl"},
    }
    planned = plan(study(methods=methods, seeds=[1, 2]), tmp_path)
    assert [run.path.name for run in planned] == ["a-s1", "control-s1", "a-s2", "control-s2"]
    assert planned[3].config.method["matched_to"] == str(tmp_path / "a-s2")
    assert [run.source for run in planned] == [None, tmp_path / "a-s1", None, tmp_path / "a-s2"]


def test_plan_lists_the_problems_of_all_labels(tmp_path: Path) -> None:
    methods = {
        "a": {"method.name": "hetero"},
        "b": {"method.name": "heterofl"},
        "c": {"method.name": "heterofl", "training.cohort": 9},
    }
    with pytest.raises(ConfigError) as caught:
        plan(study(methods=methods, seeds=[1, 2]), tmp_path)
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == ["a", "c"]


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


def test_load_study_places_no_key_in_a_block_whose_name_it_cannot_know(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump({"base": BASE, "methods": {"heterofl": {}}, "changes": {}}))
    with pytest.raises(ConfigError, match=r"changes is \{\}, but there is no such key"):
        load_study(str(file))


def test_study_refuses_unknown_papers_before_anything_is_trained() -> None:
    with pytest.raises(ValueError, match=r"paper is 'moay', but no such name is known.*moayedikia-2026"):
        study(paper="moay")
    with pytest.raises(ValueError, match=r"tasks\.x\.paper is 'ImageNet', but no such name is known"):
        study(paper="moayedikia-2026", tasks={"x": {"paper": "ImageNet"}})
    with pytest.raises(ValueError, match=r"tasks\.x\.paper is 'EMNIST', but no such name is known"):
        study(tasks={"x": {"paper": "EMNIST"}})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"seeds": [1, 1]}, "seeds is [1, 1], but a seed makes one run. Name each seed once."),
        ({"seeds": []}, "seeds is [], but it needs at least 1 entry. Add what is missing."),
        ({"seeds": ["1"]}, "seeds.0 is '1', but it should be a valid integer. Change it."),
        ({"seeds": [2, True]}, "seeds.1 is True, but it should be a valid integer. Change it."),
        ({"seeds": [-1]}, "seeds.0 is -1, but it should be greater than or equal to 0. Change it."),
        ({"seeds": 42}, "seeds is 42, but it should be a list. Change it."),
        ({"methods": {}}, "methods is {}, but it needs at least 1 entry. Add what is missing."),
        ({"methods": {"a": None}}, "methods is {}, but it needs at least 1 entry. Add what is missing."),
        ({"methods": None}, "methods is None, but it should be a mapping. Change it."),
        ({"methods": {"a": "hasfl"}}, "methods.a is 'hasfl', but it should be a mapping. Change it."),
        ({"methods": {1: {}}}, "key of methods is 1, but keys are text. Put it in quotes."),
        (
            {"methods": {"a": {}, "A": {}}},
            "methods: label is 'A', but there is 'a', and where capital letters",
        ),
        ({"tasks": {"x": {}, "X": {}}}, "tasks: label is 'X', but there is 'x', and where capital letters"),
        ({"tasks": None}, "tasks is None, but it should be a mapping. Change it."),
        ({"tasks": {"x": {"methods": []}}}, "tasks.x.methods is [], but it needs at least 1 entry."),
        ({"sweep": {"training.lr": []}}, "sweep.training.lr is [], but it needs at least 1 entry."),
        ({"sweep": {"training.lr": 0.1}}, "sweep.training.lr is 0.1, but it should be a list. Change it."),
        ({"sweep": ["training.lr"]}, "sweep is ['training.lr'], but it should be a mapping. Change it."),
    ],
)
def test_study_names_key_and_rule_when_a_value_is_bad(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        study(**content)
    assert str(caught.value).startswith(message)


def test_plan_says_once_what_is_wrong_in_many_runs(tmp_path: Path) -> None:
    methods = {name: {"method.name": "heterofl"} for name in "abc"}
    with pytest.raises(ConfigError) as caught:
        plan(study(methods=methods, tasks={"x": {}, "y": {}}, sweep={"training.lrr": [1]}), tmp_path)
    assert str(caught.value).startswith("x/a-lrr=1 and 5 more: training.lrr is 1, but there is no such key.")
    assert len(str(caught.value).splitlines()) == 1


def test_plan_blames_an_invalid_run_and_not_the_one_that_is_matched_to_it(tmp_path: Path) -> None:
    methods = {
        "a": {"method.name": "heterofl", "training.lr": -1},
        "control": {"method": {"name": "random-budget", "matched_to": "a"}},
    }
    with pytest.raises(ConfigError) as caught:
        plan(study(methods=methods), tmp_path)
    assert str(caught.value) == "a: training.lr is -1, but it should be greater than 0. Change it."


@pytest.mark.parametrize(
    "content",
    [
        {"base": {**BASE, "seed": 7}},
        {"methods": {"a": {"method.name": "heterofl", "seed": 7}}},
        {"tasks": {"x": {"changes": {"a": {"seed": 7}}}}},
    ],
)
def test_plan_refuses_a_seed_that_the_studys_seeds_would_replace(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    with pytest.raises(
        ConfigError, match=r"a: seed is 7, but the study's seeds replace it\. Write it under seeds\."
    ):
        plan(study(**content), tmp_path)


def test_plan_refuses_settings_that_share_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a-lr=0\.1: two runs have the folder 'a-lr=0\.1-s42'"):
        plan(study(sweep={"training.lr": [0.1, "0.1"]}), tmp_path)
    # Told apart by capital letters only, which some file systems do not see.
    with pytest.raises(ConfigError, match=r"a-data_dir=D: two runs have the folder 'a-data_dir=D-s42'"):
        plan(study(sweep={"task.data_dir": ["d", "D"]}), tmp_path)


@pytest.mark.parametrize(
    ("sweep", "methods"),
    [
        ({"seed": [1, 2]}, {"a": {"method.name": "heterofl"}}),
        ({"training.lr": [0.1, 0.2]}, {"a": {"method.name": "heterofl", "training.lr": 0.5}}),
    ],
)
def test_plan_refuses_a_sweep_that_has_no_effect(
    tmp_path: Path, sweep: dict[str, Any], methods: dict[str, Any]
) -> None:
    with pytest.raises(
        ConfigError, match=r"sweep\.[\w.]+ is .*, but the method, the task's changes or the seed"
    ):
        plan(study(sweep=sweep, methods=methods), tmp_path)


def test_plan_refuses_matches_that_cannot_be(tmp_path: Path) -> None:
    a = {"method": {"name": "heterofl"}}
    control = {**a, "control": {"matched_to": "a"}}
    cases = {
        r"c: matched_to is 'zz', but that is neither a method that is run on this task nor": {
            "c": {"method": {"name": "random-budget", "matched_to": "zz"}}
        },
        r"c: control\.matched_to is .*method\.name": {
            "c": {"method.name": "uniform", "control": control["control"]}
        },
        r"d: control\.matched_to is .*, but that run is a control itself": {
            "c": control,
            "d": {**a, "control": {"matched_to": "c"}},
        },
        r"c: method\.matched_to is .*training\.rounds 2 \(here 3\)": {
            "c": {"method": {"name": "random-budget", "matched_to": "a"}, "training.rounds": 3}
        },
    }
    for message, more in cases.items():
        with pytest.raises(ConfigError, match=message):
            plan(study(methods={"a": a, **more}), tmp_path)


def profiled(tmp_path: Path, profiles: Any, **content: Any) -> str:
    file = tmp_path / "own.yaml"
    methods = {"a": {"method.name": "heterofl"}}
    file.write_text(yaml.safe_dump({"base": BASE, "methods": methods, "profiles": profiles, **content}))
    return str(file)


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        (None, r"profile is 'p', but the study has no profiles\. Leave out --profile"),
        ({}, r"the study has no profiles"),
        (["p"], r"the study has no profiles"),
        ({"p": None}, r"profiles\.p is None, but a profile is a mapping"),
        ({"p": {"methods": {"zz": None}}}, r"profiles\.p\.methods is 'zz', but no such name"),
        ({"p": {"tasks": {"zz": None}}}, r"profiles\.p\.tasks is 'zz', but no such name"),
        ({"p": {"tasks": {"x": None}}}, r"profiles\.p\.tasks leaves no task"),
    ],
)
def test_load_study_refuses_profiles_that_say_nothing(tmp_path: Path, profiles: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_study(profiled(tmp_path, profiles, tasks={"x": {}}), "p")
