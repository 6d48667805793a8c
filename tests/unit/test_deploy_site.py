"""A node's own part: who it says it is, and what it refuses."""

from __future__ import annotations

import re

import pytest
import yaml
from fake_grid import FakeGrid
from flwr.app import Message, RecordDict

from widthwise.deploy import client_app
from widthwise.deploy.site import site_of


@pytest.fixture
def file(tmp_path):
    content = {
        "task": {
            "dataset": "digits",
            "model": {"name": "mlp", "hidden": [8]},
            "clients": 2,
            "partition": {"kind": "iid"},
            "limit": 30,
        },
        "method": {"name": "heterofl"},
        "training": {"cohort": 2},
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def asked(file, node_config, run_config=None):
    """Return what a node answers when it is asked who it is."""
    grid = FakeGrid(client_app(file), {7: node_config}, run_config)
    (message_id,) = grid.push_messages([Message(RecordDict(), 7, "query")])
    (reply,) = grid.pull_messages([message_id])
    return reply


def test_node_says_who_it_is(file):
    said = dict(asked(file, {"partition-id": 1, "capacity": 1}).content.config_records["node"])
    assert (said["client"], said["samples"], said["capacity"]) == (1, 15, 1.0)
    assert said.keys() == {"client", "samples", "capacity", "config", "widthwise", "torch", "flwr"}
    assert "capacity" not in asked(file, {"partition-id": 1}).content.config_records["node"]


def test_node_says_the_hash_of_the_configuration_under_its_run_config(file):
    plain, other = (
        asked(file, {"partition-id": 1}, run_config).content.config_records["node"]["config"]
        for run_config in ({"out": "there"}, {"training.lr": 0.5})
    )
    assert plain == asked(file, {"partition-id": 1}).content.config_records["node"]["config"]
    assert plain != other


@pytest.mark.parametrize(
    ("node_config", "message"),
    [
        ({}, r"partition-id in the node-config is None, but the clients are 0 to 1\. Start the node with"),
        ({"partition-id": 2}, "partition-id in the node-config is 2, but the clients are 0 to 1"),
        ({"partition-id": "0"}, "partition-id in the node-config is '0'"),
        ({"partition-id": 0, "capacity": "all"}, r"capacity in the node-config is 'all', but a width is"),
        ({"partition-id": 0, "capacity": True}, r"capacity in the node-config is True, but a width is"),
    ],
)
def test_node_refuses_a_wrong_node_config(file, node_config, message):
    assert re.search(message, asked(file, node_config).error.reason)


def test_node_keeps_its_data_from_one_message_to_the_next(file):
    grid = FakeGrid(client_app(file), {7: {"partition-id": 0}, 8: {"partition-id": 1}})
    first = site_of(file, grid.contexts[7])
    assert site_of(file, grid.contexts[8]) is first
    assert first.task is first.task
