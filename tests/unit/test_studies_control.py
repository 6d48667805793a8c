"""What ``resolve`` makes of a control, and what it refuses to match."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from widthwise.core.errors import CheckpointError, ConfigError
from widthwise.engine import load_run
from widthwise.studies.config import RunConfig, load_config, merge
from widthwise.studies.control import resolve

BASE: dict[str, Any] = {
    "task": {"dataset": "digits", "model": "mlp", "clients": 6, "partition": {"kind": "iid"}},
    "method": {"name": "hasfl", "gamma": 0.5, "objective": "proximal", "mu": 0.1},
    "training": {"rounds": 3, "cohort": 2},
    "seed": 5,
}
Stored = Callable[..., Path]


def config(**changes: Any) -> RunConfig:
    return RunConfig(**merge(BASE, changes))


@pytest.fixture
def stored(make_run: Any) -> Stored:
    """Return a writer of finished runs of a configuration, without training."""

    def write(rounds: int = 3, **changes: Any) -> Path:
        path: Path = make_run(folder="treatment", rounds=rounds)
        treatment = config(**changes)
        note = {"name": "a label", "config_hash": treatment.hash()}
        (path / "config.yaml").write_text(yaml.safe_dump({**note, **treatment.to_dict()}), encoding="utf-8")
        return path

    return write


def test_control_becomes_its_treatment_with_another_policy(stored: Stored) -> None:
    path = stored()
    control = config(control={"matched_to": str(path), "currency": "macs", "floor": 0.2})
    assert (control.name, control.matched_to) == ("hasfl-control", str(path))
    found = resolve(control)
    assert found.control is None
    assert found.matched_to is None
    treatment, method = config().method, found.method
    assert method["policy"] == "random-budget"
    assert {k: v for k, v in method.items() if k in treatment and k not in ("policy", "guarantee")} == {
        k: v for k, v in treatment.items() if k not in ("policy", "guarantee", "p_min", "gamma", "eps")
    }
    assert method["targets"] == [macs / 2 for macs in load_run(path).rounds["macs"]]
    assert (method["currency"], method["floor"], method["guarantee"]) == ("macs", 0.2, True)
    assert method["matched_to"] == config().hash()
    assert resolve(found) is found
    assert RunConfig(**found.to_dict()).hash() == found.hash()


@pytest.mark.parametrize(
    ("method", "guaranteed"),
    [
        ({"name": "hasfl"}, True),
        ({"name": "hasfl", "guarantee": False}, False),
        ({"name": "hasfl", "guarantee": False, "p_min": 1.0}, True),
        ({"name": "uniform"}, False),
        ({"name": "heterofl"}, True),
        ({"name": "fjord"}, False),
        ({"name": "exclude-the-weak"}, True),
    ],
)
def test_control_guarantees_what_its_treatment_guarantees(
    stored: Stored, method: dict[str, Any], guaranteed: bool
) -> None:
    changes = {"method": method, "capacity.tiers": [0.5, 1.0], "capacity.shares": [0.5, 0.5]}
    control = config(**changes, control={"matched_to": str(stored(**changes))})
    assert resolve(control).method["guarantee"] is guaranteed


def test_random_budget_copies_mean_widths_of_another_method(stored: Stored) -> None:
    path = stored()
    found = resolve(config(method={"name": "random-budget", "matched_to": str(path)}))
    assert found.method["targets"] == load_run(path).rounds["mean_width"].tolist()
    assert found.method["objective"] == "plain"
    assert found.method["guarantee"] is False


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 6}, "seed 5 (here 6)"),
        ({"task.clients": 7}, "task.clients 6 (here 7)"),
        ({"training.rounds": 2}, "training.rounds 3 (here 2)"),
        ({"training.cohort": 3}, "training.cohort 2 (here 3)"),
        ({"capacity.shares": [0.25] * 4}, "capacity.shares [0.35, 0.35, 0.15, 0.15] (here [0.25, 0.25"),
        (
            {"capacity.tiers": [0.5, 1.0], "capacity.shares": [0.5, 0.5]},
            "capacity.tiers [0.25, 0.5, 0.75, 1.0] (here [0.5, 1.0]), capacity.shares",
        ),
        ({"capacity": {"list": [0.5] * 6}}, "capacity.list None (here [0.5"),
        (
            {"seed": 1, "task.limit": 9, "task.clients": 9, "training.rounds": 9},
            "task.clients 6 (here 9), task.limit None (here 9), training.rounds 3 (here 9) and 1 more. Use",
        ),
    ],
)
@pytest.mark.parametrize("section", ["control", "method"])
def test_resolve_refuses_a_run_of_other_clients_rounds_or_seed(
    stored: Stored, section: str, changes: dict[str, Any], told: str
) -> None:
    match = {"matched_to": str(stored())}
    block = match if section == "control" else {"name": "random-budget", **match}
    with pytest.raises(ConfigError, match=rf"^{section}\.matched_to is .*{re.escape(told)}"):
        resolve(config(**changes, **{section: block}))


def test_resolve_refuses_a_control_whose_method_or_training_is_not_the_treatments(stored: Stored) -> None:
    match = {"matched_to": str(stored())}
    with pytest.raises(
        ConfigError, match=r"in the allocation only, and that run has method\.mu 0\.1 \(here 1"
    ):
        resolve(config(**{"method.mu": 1}, control=match))
    with pytest.raises(ConfigError, match=r"that run has training\.lr 0\.01 \(here 0\.5\)\. Use that run's"):
        resolve(config(**{"training.lr": 0.5}, control=match))
    method = {"name": "random-budget", "mu": 2, "objective": "proximal", **match}
    assert resolve(config(method=method, **{"training.lr": 0.5})).method["mu"] == 2


def test_resolve_looks_only_at_what_is_computed(stored: Stored) -> None:
    match = {"matched_to": str(stored())}
    assert resolve(config(control=match, engine={"workers": 1, "eval_every": 2})).method["targets"]


def test_resolve_refuses_an_unfinished_run(stored: Stored) -> None:
    path = stored(rounds=2)
    with pytest.raises(
        ConfigError, match=r"that run has 2 rounds and this one 3\. Finish that run first: .*--resume"
    ):
        resolve(config(control={"matched_to": str(path)}))


def test_resolve_refuses_what_is_no_run_of_this_version(tmp_path: Path, make_run: Any) -> None:
    with pytest.raises(CheckpointError, match=r"holds no config\.yaml\. Give the folder of a run"):
        resolve(config(control={"matched_to": str(tmp_path / "nothing")}))
    old = make_run(folder="old", rounds=3)
    with pytest.raises(
        ConfigError, match=r"config\.yaml is none of this version \(task\.partition is missing"
    ):
        resolve(config(control={"matched_to": str(old)}))


def test_run_config_refuses_a_bad_control() -> None:
    with pytest.raises(
        ConfigError, match=r"control\.currency is 'kg', but it should be 'width', 'params', 'macs' or 'bytes'"
    ):
        config(control={"matched_to": "x", "currency": "kg"})
    with pytest.raises(ConfigError, match=r"control\.matched_to is missing, but it is required\. Add it\."):
        config(control={})
    both = {"method": {"name": "random-budget", "matched_to": "x"}, "control": {"matched_to": "y"}}
    with pytest.raises(
        ConfigError, match=r"control\.matched_to is 'y', but method\.matched_to is set too \('x'\)"
    ):
        config(**both)


def test_control_is_written_and_hashed_only_where_it_is_set() -> None:
    control = config(control={"matched_to": "runs/x"})
    assert "control" not in config().to_dict()
    assert control.hash() != config().hash()
    assert RunConfig(**control.to_dict()) == control


def test_example_control_is_the_control_of_its_example() -> None:
    examples = Path(__file__).parents[2] / "examples"
    control = load_config(examples / "digits-control.yaml").to_dict()
    assert control.pop("control")["matched_to"] == "runs/digits-hasfl-hasfl-s42"
    assert RunConfig(**control).hash() == load_config(examples / "digits-hasfl.yaml").hash()
