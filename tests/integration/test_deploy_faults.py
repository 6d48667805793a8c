"""Whole runs over a grid whose nodes die, hang, lie and come back."""

from __future__ import annotations

import json
import logging
import re
from importlib import import_module

import numpy as np
import pytest
import yaml
from fake_grid import FakeGrid
from flwr.app import Array, Error, Message
from flwr.common.constant import ErrorCode
from safetensors.torch import load_file

from widthwise.core.errors import CheckpointError, RunError
from widthwise.deploy import client_app, server_app
from widthwise.studies import load_config, run

CAPACITIES = [0.25, 0.5, 0.75, 1.0]
NODES = {100 + i: {"partition-id": i, "capacity": c} for i, c in enumerate(CAPACITIES)}


def configuration(**deploy):
    return {
        "task": {
            "dataset": "digits",
            "model": {"name": "mlp", "hidden": [8]},
            "clients": 4,
            "partition": {"kind": "iid"},
            "limit": 80,
            "test_limit": 50,
        },
        "capacity": {"list": CAPACITIES},
        "method": {"name": "heterofl"},
        "training": {
            "rounds": 4,
            "cohort": 4,
            "local_epochs": 1,
            "batch_size": 8,
            "lr": 0.05,
            "momentum": 0.0,
        },
        "engine": {"executor": "serial", "stack": 1},
        "deploy": {"deadline": 0.3, "wait": 0.3, **deploy},
        "seed": 3,
    }


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for module in ("exchange", "roster"):
        monkeypatch.setattr(import_module(f"widthwise.deploy.{module}"), "POLL", 0.02)


@pytest.fixture
def setup(tmp_path):
    """Return a function that writes a configuration and makes grid and server of it."""

    def make(content=None, nodes=None):
        file, out = tmp_path / "config.yaml", tmp_path / "out"
        file.write_text(yaml.safe_dump(content or configuration()), encoding="utf-8")
        grid = FakeGrid(client_app(file), nodes or NODES, {"out": str(out)})
        return grid, lambda: server_app(file)(grid, grid.contexts[100]), out

    return make


def rounds(out):
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


def journal(out):
    return [json.loads(line) for line in (out / "nodes.jsonl").read_text().splitlines()]


def lost(caplog):
    return [r.getMessage() for r in caplog.records if "is dropped" in r.getMessage()]


def changed(change):
    """A node that answers as it should, but for a change in the content."""

    def fault(message, answer):
        reply = answer(message)
        change(reply.content)
        return [reply]

    return fault


def nan(content):
    name, array = next(iter(content["update"].items()))
    data = np.frombuffer(array.data, np.float32).copy()
    data[0] = np.nan
    content["update"][name] = Array(array.dtype, tuple(array.shape), array.stype, data.tobytes())


def wrong_shape(content):
    name, array = next(iter(content["update"].items()))
    content["update"][name] = Array(array.dtype, tuple(reversed(array.shape)), array.stype, array.data)


def many_samples(content):
    content["report"]["examples"] = 10**12


def other_round(content):
    content["report"]["round"] = 0


def in_the_name_of_another(message, answer):
    reply = answer(message)
    reply.metadata.__dict__["_reply_to_message_id"] = "0" * 64
    return [reply]


FAULTS = {
    "non-finite": (changed(nan), "update of .* holds a NaN"),
    "shape": (changed(wrong_shape), "has shape"),
    "examples": (changed(many_samples), "1000000000000 samples"),
    "round": (changed(other_round), "it answers for client 2, round 0"),
    "deadline": (lambda message, answer: [], "no answer within 0.3 s"),
    "offline": (
        lambda message, answer: [Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)],
        "gone",
    ),
    "error": (
        lambda message, answer: [
            Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "oh"), reply_to=message)
        ],
        "oh",
    ),
    "unreadable": (
        lambda message, answer: [ValueError("Unexpected set of `children`.")],
        "ValueError: Unexpected",
    ),
    "unreadable (for another)": (in_the_name_of_another, "it says that it answers another message"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_round_goes_on_without_a_client_that_fails_and_says_so_once(setup, caplog, name):
    kind, (fault, reason) = name.split()[0], FAULTS[name]
    grid, start, out = setup()
    grid.faults[2, 102] = fault
    with caplog.at_level(logging.INFO, "flwr"):
        start()
    found = rounds(out)
    assert [r.get("dropped") for r in found] == [None, None, {kind: 1}, None]
    assert [r["mean_width"] for r in found] == [0.625, 0.625, 0.4375, 0.625]
    (line,) = lost(caplog)
    assert line.startswith(f"round 2: client 2 (node 102) is dropped, {kind}: ")
    (entry,) = [e for e in journal(out) if e["outcome"] != "accepted"]
    assert (entry["round"], entry["client"], entry["node"], entry["outcome"]) == (2, 2, 102, kind)
    assert re.search(reason, entry["reason"])
    assert re.search(reason, line)


def test_second_answer_of_a_client_is_dropped_and_the_first_counts(setup, caplog, tmp_path):
    grid, start, out = setup()

    def twice(message, answer):
        reply = answer(message)
        return [reply, changed(nan)(message, answer)[0]]

    grid.faults[1, 101] = twice
    with caplog.at_level(logging.INFO, "flwr"):
        start()
    assert [r.get("dropped") for r in rounds(out)] == [None, {"duplicate": 1}, None, None]
    assert lost(caplog) == ["round 1: client 1 (node 101) is dropped, duplicate: it has answered already"]
    run(load_config(tmp_path / "config.yaml"), tmp_path / "clean")
    ours, clean = (load_file(folder / "final.safetensors") for folder in (out, tmp_path / "clean"))
    assert all(ours[name].equal(clean[name]) for name in clean)


def test_late_answers_are_taken_off_the_grid_and_count_in_no_round(setup):
    grid, start, out = setup()
    kept = {}

    def late(message, answer):
        kept[message.metadata.message_id] = answer(message)
        return []

    grid.faults[1, 101] = late

    def deliver(message):
        if message.metadata.group_id == "2":
            grid._waiting.update({name: [reply] for name, reply in kept.items()})

    grid.before = deliver
    start()
    assert [r.get("dropped") for r in rounds(out)] == [None, {"deadline": 1}, None, None]
    assert not grid._waiting.keys() & kept.keys()


def test_missing_full_width_client_leaves_coordinates_untrained_and_the_log_says_which(setup, caplog):
    grid, start, out = setup()
    grid.faults[2, 103] = FAULTS["deadline"][0]
    with caplog.at_level(logging.INFO, "flwr"):
        start()
    (line,) = [r.getMessage() for r in caplog.records if "went untrained" in r.getMessage()]
    # An mlp 64-8-10 without its channels 6 and 7: rows of [8, 64], two biases, columns of [10, 8].
    total, missing = 8 * 64 + 8 + 10 * 8 + 10, 2 * 64 + 2 + 2 * 10
    assert line.startswith(
        f"round 2: {missing / total:.1%} of the coordinates went untrained (channels 6-7 of "
    )
    assert rounds(out)[2]["coverage"] == pytest.approx(1 - missing / total)


def test_round_is_repeated_until_enough_answers_count(setup, caplog, tmp_path):
    grid, start, out = setup(configuration(min_cohort=4))
    left = [2]

    def twice_silent(message, answer):
        left[0] -= 1
        return [] if left[0] >= 0 else [answer(message)]

    grid.faults[1, 103] = twice_silent
    with caplog.at_level(logging.INFO, "flwr"):
        start()
    assert [r.get("dropped") for r in rounds(out)] == [None] * 4
    repeats = [r.getMessage() for r in caplog.records if r.getMessage().endswith(": repeated")]
    assert repeats == ["round 1: 3 of 4 answers count, 4 are needed: repeated"] * 2
    assert [e["attempt"] for e in journal(out) if e["round"] == 1 and e["client"] == 3] == [0, 1, 2]
    run(load_config(tmp_path / "config.yaml"), tmp_path / "clean")
    ours, clean = (load_file(folder / "final.safetensors") for folder in (out, tmp_path / "clean"))
    assert all(ours[name].equal(clean[name]) for name in clean)  # no attempt has left a trace


def test_run_fails_after_the_last_repeat_and_goes_on_from_there(setup):
    grid, start, out = setup(configuration(min_cohort=4, repeats=1))
    grid.faults[2, 103] = FAULTS["deadline"][0]
    message = (
        r"^round 2, stage training: the number of answers that count is 3 of 4 after 1 repeats, but "
        r"deploy.min_cohort asks for 4\. See nodes.jsonl"
    )
    with pytest.raises(RunError, match=message):
        start()
    assert (out / "error.txt").is_file()
    assert len(rounds(out)) == 2
    grid.faults.clear()
    start()
    assert [r["round"] for r in rounds(out)] == [0, 1, 2, 3]
    assert (out / "result.json").is_file()
    assert not (out / "error.txt").exists()


def test_run_fails_where_too_few_nodes_are_there(setup):
    grid, start, out = setup(configuration(min_nodes=4, wait=0.1))
    grid.online.discard(101)
    with pytest.raises(
        RunError, match=r"^stage start: the number of clients with a node is 3 after 0.1 s, but 4"
    ):
        start()
    assert not out.exists()


def test_absent_client_is_dropped_and_joins_when_it_comes(setup, caplog):
    grid, start, out = setup(configuration(min_nodes=3))
    grid.online.discard(101)

    def appear(message):
        if message.metadata.group_id == "1":
            grid.online.add(101)

    grid.before = appear
    with caplog.at_level(logging.INFO, "flwr"):
        start()
    assert [r.get("dropped") for r in rounds(out)] == [{"absent": 1}, {"absent": 1}, None, None]
    assert lost(caplog)[0] == "round 0: client 1 (node none) is dropped, absent: it has no node"


def test_node_that_reconnects_under_another_id_is_found_again(setup):
    grid, start, out = setup()
    grid.add(999, NODES[102])

    def reconnect(message):
        if message.metadata.group_id == "1":
            grid.online.discard(102)
            grid.online.add(999)

    grid.before = reconnect
    start()
    assert [r.get("dropped") for r in rounds(out)] == [None] * 4
    assert [e["node"] for e in journal(out) if e["client"] == 2] == [102, 102, 999, 999]


def test_second_node_of_a_client_is_refused_and_takes_over_when_the_first_fails(setup, caplog):
    grid, start, out = setup(nodes={**NODES, 777: NODES[102]})
    grid.faults[2, 102] = FAULTS["deadline"][0]
    with caplog.at_level(logging.INFO, "flwr"):
        start()
    refused = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
    assert refused == ["node 777 is refused: client 2 is node 102 already, and there is one for each"]
    assert "client 2: node 777 takes the place of node 102" in [r.getMessage() for r in caplog.records]
    assert [e["node"] for e in journal(out) if e["client"] == 2] == [102, 102, 102, 777]


def test_stopped_server_goes_on_from_its_last_finished_round(setup, tmp_path):
    grid, start, out = setup()

    class Killed(BaseException):
        """Nothing handles it, as nothing handles SIGKILL."""

    def kill(message):
        if message.metadata.group_id == "2":
            raise Killed

    grid.before = kill
    with pytest.raises(Killed):
        start()
    assert len(rounds(out)) == 2
    grid.before = lambda message: None
    asked = len(grid.log)
    start()
    assert {t for t, *_ in grid.log[asked:]} == {None, 2, 3}  # who they are, and the rounds that are left
    run(load_config(tmp_path / "config.yaml"), tmp_path / "clean")
    ours, clean = (load_file(folder / "final.safetensors") for folder in (out, tmp_path / "clean"))
    assert all(ours[name].equal(clean[name]) for name in clean)


def test_finished_run_is_not_run_again_and_says_so(setup, caplog):
    grid, start, out = setup()
    start()
    asked = len(grid.log)
    with caplog.at_level(logging.INFO, "flwr"):
        start()
    assert len(grid.log) == asked
    assert f"the run in {out} is complete already" in caplog.text


def test_finished_run_without_its_model_is_refused(setup):
    _, start, out = setup()
    start()
    for damage in ((out / "final.safetensors").unlink, lambda: (out / "final.safetensors").write_bytes(b"x")):
        damage()
        with pytest.raises(CheckpointError, match=r"^final\.safetensors in run folder .* cannot be read"):
            start()


def test_stated_capacity_counts_within_what_the_list_allows(setup, caplog):
    nodes = {**NODES, 100: {"partition-id": 0, "capacity": 0.9}, 103: {"partition-id": 3, "capacity": 0.5}}
    _, start, out = setup(nodes=nodes)
    with caplog.at_level(logging.INFO, "flwr"):
        start()
    assert "client 0 states capacity 0.9, capped at 0.25" in [r.getMessage() for r in caplog.records]
    assert json.loads((out / "partition.json").read_text())["capacities"] == [0.25, 0.5, 0.75, 0.5]
    assert load_config(out / "config.yaml").capacity.list == (0.25, 0.5, 0.75, 0.5)
    run(load_config(out / "config.yaml"), out.parent / "again")  # its own configuration makes it again
    ours, again = (load_file(folder / "final.safetensors") for folder in (out, out.parent / "again"))
    assert all(ours[name].equal(again[name]) for name in again)


def test_node_that_can_do_less_than_the_run_counts_on_is_refused(setup, caplog):
    grid, start, out = setup(configuration(min_nodes=3))
    grid.contexts[103].node_config["capacity"] = 0.5
    grid.online.discard(103)

    def appear(message):
        grid.online.add(103)

    grid.before = appear
    with caplog.at_level(logging.INFO, "flwr"):
        start()
    refused = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
    assert refused == ["node 103 is refused: it can train 0.5, but the run counts on 1 of it"]
    assert all(r["dropped"] == {"absent": 1} for r in rounds(out))
