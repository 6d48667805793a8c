"""A node's own part: who it says it is, and what it refuses."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import pytest
import yaml
from fake_grid import FakeGrid
from flwr.app import Message, RecordDict

from widthwise.deploy import capacity, client_app
from widthwise.deploy.site import site_of
from widthwise.engine.probe import Bounds, ProbeResult, ProbeRow


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
        (
            {"partition-id": 0, "capacity": "all"},
            r"capacity in the node-config is 'all', but it must be a number",
        ),
        (
            {"partition-id": 0, "capacity": True},
            r"capacity in the node-config is True, but it must be a number",
        ),
        (
            {"partition-id": 0, "capacity": 0.5, "memory-mb": 900},
            "the node-config has capacity and memory-mb, but a node has either capacity, or memory-mb and",
        ),
        ({"partition-id": 0, "memory-mb": 900}, "the node-config has memory-mb, but a node has either"),
        (
            {"partition-id": 0, "memory-mb": "much", "seconds-per-step": 1},
            "memory-mb in the node-config is 'much', but it must be a number",
        ),
        ({"partition-id": 0, "memory-mb": 0, "seconds-per-step": 1}, "the bound of memory is 0, but it must"),
        (
            {"partition-id": 0, "capcity": 0.5},
            "is 'capcity', but no such name is known. Did you mean 'capacity'",
        ),
    ],
)
def test_node_refuses_a_wrong_node_config(file, node_config, message):
    assert re.search(message, asked(file, node_config).error.reason)


def test_node_measures_its_capacity_once_in_a_run(file, monkeypatch):
    measured = []

    def probe(space, model, batch, bounds, **options):
        measured.append((space, bounds, len(batch[1]), options))
        return ProbeResult(bounds, (row(0.25), row(0.5), replace(row(1.0), exceeds=("time",))))

    monkeypatch.setattr(capacity, "probe", probe)
    grid = FakeGrid(client_app(file), {7: {"partition-id": 1, "memory-mb": 900, "seconds-per-step": 0.5}})
    for _ in range(2):
        (message_id,) = grid.push_messages([Message(RecordDict(), 7, "query")])
        (reply,) = grid.pull_messages([message_id])
        assert reply.content.config_records["node"]["capacity"] == 0.5
    ((space, bounds, samples, options),) = measured
    site = site_of(file, grid.contexts[7])
    assert space is site.space
    assert (bounds, samples) == (Bounds(900, 0.5), 15)
    assert options["training"] == site.config.training.local(0)
    assert options["objective"] == site.config.built_method.objective
    assert options["held"] > 10 * 2**20


def row(width):
    return ProbeRow(width, 1, 1, 1.0, 1.0, 0.1, ())


def test_node_that_cannot_train_the_smallest_width_says_so(file):
    """For real: no process of torch fits one MiB."""
    reply = asked(file, {"partition-id": 0, "memory-mb": 1, "seconds-per-step": 1})
    assert re.search(
        r"client 0, stage probe: Not even width 0.\d+ fits 1 MiB and 1 s a step", reply.error.reason
    )


def test_node_keeps_its_data_from_one_message_to_the_next(file):
    grid = FakeGrid(client_app(file), {7: {"partition-id": 0}, 8: {"partition-id": 1}})
    first = site_of(file, grid.contexts[7])
    assert site_of(file, grid.contexts[8]) is first
    assert first.task is first.task


@pytest.mark.parametrize(("precision", "lines"), [("fp32", 0), ("bf16", 1)])
def test_node_logs_once_that_it_emulates_bf16(file, precision, lines, monkeypatch, caplog):
    monkeypatch.setattr("widthwise.engine.config.has_bfloat16", lambda device: False)
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    grid = FakeGrid(client_app(file), {7: {"partition-id": 0}}, {"engine.precision": precision})
    site = site_of(file, grid.contexts[7])
    assert site.runner is site.runner
    assert sum("this CPU has no instructions for bfloat16" in line for line in caplog.messages) == lines
