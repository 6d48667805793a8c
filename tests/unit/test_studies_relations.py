"""Which methods of a study are the paper's and which are compared: by settings, whatever their labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from widthwise.studies import Study, load_study, plan
from widthwise.studies.expected import load_expected
from widthwise.studies.relations import eq_6, labels_by_method, pairs, the_one

BASE = {"task": {"dataset": "digits", "model": "mlp", "partition": {"kind": "iid"}}}
ROOT = Path(__file__).parents[2]


def relations(methods: dict[str, Any], **study: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return label -> configuration and label of a control -> label of its treatment."""
    return of_study(Study(base=BASE, methods=methods, **study))


def of_study(study: Study) -> tuple[dict[str, Any], dict[str, str]]:
    planned = [run for run in plan(study, Path("x")) if run.config.seed == study.seeds[0]]
    labels = {run.path: run.label for run in planned}
    sources = {run.label: labels[run.source] for run in planned if run.source}
    return {run.label: run.config for run in planned}, sources


HASFL = {"method": {"name": "hasfl"}}
NAMED_OTHERWISE = {
    "off": {"method": {"name": "hasfl", "guarantee": False}},
    "on": HASFL,
    "random": {"method": {"name": "random-budget", "matched_to": "on"}},
    "control": {**HASFL, "control": {"matched_to": "on"}},
    "control-macs": {**HASFL, "control": {"matched_to": "on", "currency": "macs"}},
    "control-of-off": {"method": {"name": "hasfl", "guarantee": False}, "control": {"matched_to": "off"}},
    "full": {"method": {"name": "fedavg", "estimator": "none"}},
    "half": {"method": {"name": "uniform"}},
    "static": {"method": {"name": "heterofl", "weighting": "clients"}},
    "weak-proximal": {"method": {"name": "fedprox", "mu": 0.1}},
}


def test_labels_by_method_goes_by_parts_and_options():
    known = labels_by_method(load_expected("moayedikia-2026").methods, *relations(NAMED_OTHERWISE))
    assert {method: labels for method, labels in known.items() if labels} == {
        "hasfl": ("on",),
        "hasfl-no-guarantee": ("off",),
        "random-budget": ("random",),
        "hasfl-control": ("control",),
        "fedavg": ("full",),  # what it measures changes nothing in it
        "uniform": ("half",),
    }


def test_the_one_is_none_of_several_unless_one_bears_the_name():
    methods = {"a": HASFL, "b": {"method": {"name": "hasfl", "gamma": 0.5}}}
    paper = load_expected("moayedikia-2026").methods
    known = labels_by_method(paper, *relations(methods))
    assert known["hasfl"] == ("a", "b")
    assert the_one("hasfl", known) is None
    known = labels_by_method(
        paper, *relations({**methods, "hasfl": {"method": {"name": "hasfl", "p_min": 0.3}}})
    )
    assert the_one("hasfl", known) == "hasfl"
    assert the_one("fjord", known) is None


def test_labels_by_method_finds_no_control_where_its_treatment_is_not_certain():
    methods = {
        "a": HASFL,
        "b": {"method": {"name": "hasfl", "gamma": 0.5}},
        "c": {"method": {"name": "random-budget", "matched_to": "a"}},
        "d": {"method": {"name": "random-budget", "budget": 0.5}},
    }
    known = labels_by_method(load_expected("moayedikia-2026").methods, *relations(methods))
    assert known["random-budget"] == ()


def test_pairs_of_the_controls_example_compare_every_treatment_with_its_controls():
    found = pairs(*of_study(load_study(str(ROOT / "examples/studies/digits-controls.yaml"))))
    controls = {pair: what for pair, what in found.items() if what.startswith("matched control")}
    assert controls == {
        ("hasfl", "hasfl-control-width"): "matched control (width)",
        ("hasfl", "hasfl-control-params"): "matched control (params)",
        ("hasfl", "hasfl-control-macs"): "matched control (macs)",
        ("hasfl", "hasfl-control-bytes"): "matched control (bytes)",
        ("fjord", "fjord-control"): "matched control (macs)",
    }
    assert ("hasfl", "hasfl-reversed") in found
    assert not {("hasfl", "fjord-control"), ("fjord", "hasfl-control-macs")} & set(found)


def test_pairs_subtract_off_from_on_whatever_they_are_called():
    found = pairs(*relations(NAMED_OTHERWISE))
    assert found["on", "off"] == "guarantee on − off"
    assert ("off", "on") not in found
    assert found["half", "full"] == "full model"
    assert found["on", "full"] == "full model"
    assert not any(first == second for first, second in found)
    assert not any((second, first) in found for first, second in found)


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        (
            {"a": "heterofl", "b": "hasfl", "c": "fjord"},
            {("b", "a"), ("b", "c")},
        ),  # without a control: those whose widths follow what is measured
        ({"a": "heterofl", "b": "fjord", "c": "uniform"}, {("a", "b"), ("a", "c"), ("b", "c")}),
        ({"a": "heterofl"}, set()),
    ],
)
def test_pairs_without_controls(methods, expected):
    settings = {label: {"method": {"name": name}} for label, name in methods.items()}
    assert set(pairs(*relations(settings))) == expected


def test_pairs_stay_within_one_setting_of_a_sweep():
    methods = {"hasfl": HASFL, "fedavg": {"method": {"name": "fedavg"}}}
    for key, values in ({"training.cohort": [5, 10], "training.lr": [0.1, 0.2]}).items():
        found = pairs(*relations(methods, sweep={key: values}), (key,))
        name = key.removeprefix("training.")
        assert set(found) == {(f"hasfl-{name}={value}", f"fedavg-{name}={value}") for value in values}


def test_pairs_subtract_off_from_on_across_a_sweep_of_the_switch():
    found = pairs(*relations({"a": HASFL}, sweep={"method.guarantee": [False, True]}), ("method.guarantee",))
    assert found == {("a-guarantee=True", "a-guarantee=False"): "guarantee on − off"}


def test_eq_6_prefers_the_guarantee_and_is_no_control():
    assert eq_6(*relations(NAMED_OTHERWISE)) == "on"
    assert eq_6(*relations({"off": NAMED_OTHERWISE["off"]})) == "off"
    assert eq_6(*relations({"half": NAMED_OTHERWISE["half"]})) is None
