"""From files and nodes to what is run."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from widthwise.core.errors import ConfigError
from widthwise.deploy.roster import Claim
from widthwise.deploy.settings import configured, identity, overrides, settled
from widthwise.studies.config import RunConfig, load_config

TASK = {"dataset": "digits", "model": "cnn-small", "clients": 4, "partition": {"kind": "iid"}}


def config(**sections):
    training = {"rounds": 5, "cohort": 2}
    return {"task": TASK, "method": {"name": "heterofl"}, "training": training, **sections}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(config()), encoding="utf-8")
    return path


def claim(client, capacity):
    return Claim(client, capacity, samples=9, versions={})


def test_configured_lays_the_run_config_over_the_file(file):
    run_config = {
        "rounds": 2,
        "training.lr": 0.5,
        "deploy.deadline": 9,
        "method.name": "fedavg",
        "out": "there",
    }
    found, out = configured(file, run_config)
    assert (found.training.rounds, found.training.lr, found.method["name"]) == (2, 0.5, "fedavg")
    assert found.deploy is not None
    assert found.deploy.deadline == 9
    assert out == Path("there")


def test_configured_takes_the_run_folder_of_the_command_line_where_none_is_named(file):
    assert configured(file, {})[1] == Path("runs/mine-heterofl-s42")


def test_overrides_read_texts_as_yaml_and_keep_numbers_and_switches():
    found = overrides({"capacity.list": "[0.5, 1.0]", "task.augment": True, "seed": 7, "training.lr": 1e-5})
    assert found == ("capacity.list=[0.5, 1.0]", "seed=7", "task.augment=true", "training.lr=1e-05")


def test_configured_refuses_a_key_that_does_not_exist(file):
    with pytest.raises(ConfigError, match=r"^round is 3, but there is no such key\."):
        configured(file, {"round": 3})
    with pytest.raises(ConfigError, match=r"^deploy.deadlin is 3, but .* Did you mean 'deploy.deadline'\?"):
        configured(file, {"deploy.deadlin": 3})


def test_deploy_block_is_stored_but_no_part_of_the_identity():
    plain, deployed = RunConfig(**config()), RunConfig(**config(deploy={"deadline": 9}))
    assert plain.hash() == deployed.hash()
    assert "deploy" not in plain.to_dict()
    assert deployed.to_dict()["deploy"]["deadline"] == 9


def test_identity_is_the_same_on_every_device():
    one, other = (RunConfig(**config(engine={"device": device})) for device in ("cpu", "cuda"))
    assert one.hash() != other.hash()
    assert identity(one) == identity(other) == one.hash()
    assert identity(RunConfig(**config(seed=1))) != identity(one)


@pytest.mark.parametrize(
    ("key", "value"), [("deadline", 0), ("wait", -1), ("min_cohort", 0), ("repeats", -1), ("max_norm", 0)]
)
def test_deploy_block_refuses_values_out_of_range(key, value):
    with pytest.raises(ConfigError, match=rf"^deploy.{key} is {value}, but it should be"):
        RunConfig(**config(deploy={key: value}))


def test_settled_leaves_a_configuration_alone_where_nodes_state_nothing_else():
    one = RunConfig(**config(capacity={"list": [0.25, 0.5, 0.75, 1.0]}))
    assert settled(one, [claim(0, None), claim(3, 1.0)]) is one
    drawn = RunConfig(**config())
    assert settled(drawn, [claim(0, None)]) is drawn


def test_settled_caps_at_the_list_and_takes_less_as_it_is(caplog):
    one = RunConfig(**config(capacity={"list": [0.25, 0.5, 0.75, 1.0]}))
    with caplog.at_level(logging.WARNING, "flwr"):
        found = settled(one, [claim(0, 0.9), claim(2, 0.33)])
    assert found.capacity.list == (0.25, 0.5, 0.33, 1.0)
    assert [r.getMessage() for r in caplog.records] == ["client 0 states capacity 0.9, capped at 0.25"]


def test_settled_takes_stated_capacities_as_they_are_where_the_configuration_only_draws_them():
    one = RunConfig(**config(capacity={"tiers": [0.5, 1.0], "shares": [1.0, 0.0]}))
    found = settled(one, [claim(1, 0.8)])
    assert found.capacity.list == (0.5, 0.8, 0.5, 0.5)
    assert found.capacity.levels() == (0.5, 0.8)
    assert found.hash() != one.hash()


def test_stored_configuration_with_a_deploy_block_is_read_again(tmp_path):
    one = RunConfig(**config(deploy={"min_cohort": 2}))
    path = tmp_path / "config.yaml"
    path.write_text(
        yaml.safe_dump({"name": "x", "config_hash": one.hash(), **one.to_dict()}), encoding="utf-8"
    )
    assert load_config(path) == one


def test_widthwise_works_without_flwr_and_deploy_says_what_to_install():
    code = (
        "import sys; sys.modules['flwr'] = None\n"
        "import widthwise; widthwise.run; widthwise.RunConfig\n"
        "from widthwise.core.errors import ConfigError\n"
        "try:\n    import widthwise.deploy\n"
        "except ConfigError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "widthwise.deploy is imported, but the package 'flwr' is not installed. "
        "Run: pip install 'widthwise[flower]'\n"
    )
