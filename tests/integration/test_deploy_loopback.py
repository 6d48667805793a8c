"""A federation of real processes over TLS with node authentication, on the loopback interface.

One SuperLink and four SuperNodes live through all of it; runs are submitted as a user submits them. In
messages and files rounds are counted from 0: the second round is round 1.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import yaml
from loopback import Loopback

import widthwise as ww
from widthwise.deploy.keys import make_keys
from widthwise.deploy.project import write_project
from widthwise.engine import RunResult

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc"),
]

CAPACITIES = (0.25, 0.5, 0.75, 1.0)
ROUNDS = 5
RUN: dict[str, Any] = {
    "task": {
        "dataset": "digits",
        "model": {"name": "mlp", "hidden": [16]},
        "clients": 4,
        "partition": {"kind": "iid"},
        "limit": 600,
    },
    "capacity": {"list": list(CAPACITIES)},
    "method": {"name": "hasfl", "warmup": 0, "adapt_every": 1},
    "training": {"rounds": ROUNDS, "cohort": 4, "local_epochs": 3, "batch_size": 16, "lr": 0.1},
    "engine": {"executor": "serial"},
    "deploy": {"deadline": 25, "wait": 60},
}
HOSTILE = Path(__file__).parents[1] / "support" / "hostile_app.py"
LIMIT = 150.0
"""Seconds that a run may take on a busy machine."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loop")


@pytest.fixture(scope="module")
def simulated(place: Path) -> RunResult:
    return ww.run(ww.RunConfig(**RUN), out=place / "simulated")


@pytest.fixture(scope="module")
def project(place: Path) -> Path:
    """A written project; its run folder is named by the command that starts a run."""
    config = place / "run.yaml"
    config.write_text(yaml.safe_dump(RUN), encoding="utf-8")
    write_project(place / "project", str(config))
    return place / "project"


@pytest.fixture(scope="module")
def federation(place: Path, project: Path) -> Iterator[Loopback]:
    """SuperLink and four registered SuperNodes; at the end none of their processes is left."""
    home = place / "h"
    home.mkdir()
    with Loopback(project, home) as running:
        for number in range(len(CAPACITIES)):
            running.flwr("supernode", "register", f"keys/node-{number}.pub", "deployment")
        for number, capacity in enumerate(CAPACITIES):
            running.start_node(number, capacity)
        yield running
    assert list(running.alive()) == []


def submit(federation: Loopback, project: Path, out: Path) -> str:
    """Start a run and return the name of the process that shows its log until it ends."""
    name = f"run-{len(federation.processes)}"
    federation.start(name, "flwr", "run", project, "deployment", "--stream", "--run-config", f'out="{out}"')
    return name


def finished(federation: Loopback, name: str, out: Path) -> RunResult:
    federation.wait_for(f"{name} is over", lambda: federation.processes[name].poll() is not None, LIMIT)
    assert (out / "result.json").is_file(), federation.log(name)
    return ww.load_run(out)


def rounds_done(out: Path) -> int:
    file = out / "rounds.jsonl"
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def answers(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "nodes.jsonl").read_text(encoding="utf-8").splitlines()]


def same_model(one: RunResult, other: RunResult) -> bool:
    mine, theirs = (safetensors.torch.load_file(run.path / "final.safetensors") for run in (one, other))
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.fixture(scope="module")
def clean(federation: Loopback, project: Path, place: Path) -> tuple[RunResult, str]:
    """An undisturbed run, and its log."""
    name = submit(federation, project, place / "clean")
    return finished(federation, name, place / "clean"), federation.log(name)


def test_parameters_are_those_of_the_simulation_to_the_bit(
    clean: tuple[RunResult, str], simulated: RunResult
) -> None:
    run, log = clean
    assert same_model(run, simulated)
    assert run.rounds["accuracy"].tolist() == simulated.rounds["accuracy"].tolist()
    assert "dropped" not in log


def test_readme_of_the_project_has_the_options_that_were_used(federation: Loopback) -> None:
    text = (federation.project / "README.md").read_text(encoding="utf-8")
    for name in ("superlink", "node-0"):
        arguments = federation.processes[name].args
        assert isinstance(arguments, list)
        used = {str(word) for word in arguments if str(word).startswith("--")} - {"--host"}
        (shown,) = re.findall(rf"\$ {arguments[0]} .*?(?=\n\$|\n```)", text, re.S)[:1]
        assert set(re.findall(r"--[\w-]+", shown)) | {"--port"} == used | {"--port"}


def test_bytes_are_those_of_the_cost_table_and_headers(
    federation: Loopback, clean: tuple[RunResult, str], simulated: RunResult
) -> None:
    """Flower's own count is the independent one: of all objects that nodes have pulled and pushed."""
    run, log = clean
    found = answers(run.path)
    assert len(found) == ROUNDS * len(CAPACITIES)
    table = simulated.clients.set_index(["round", "client"])
    for one in found:
        for way in ("down", "up"):
            expected = table.loc[(one["round"], one["client"]), f"bytes_{way}"]
            assert one[f"tensors_{way}"] == one[f"table_{way}"] == expected
            assert expected < one[f"bytes_{way}"] < 1.05 * expected + 2600, one
    run_id = re.search(r"started run (\d+)", log)
    assert run_id is not None
    shown = json.loads(federation.flwr("list", "deployment", "--run-id", run_id[1], "--format", "json"))
    traffic = shown["runs"][0]["network-traffic"]
    messages = len(found) + len(CAPACITIES)  # each node is asked once who it is
    for way, counted in (("down", traffic["outbound-bytes"]), ("up", traffic["inbound-bytes"])):
        assert 0 < counted - sum(one[f"bytes_{way}"] for one in found) < 2600 * messages


def test_server_that_is_killed_goes_on_from_its_round(
    federation: Loopback, project: Path, place: Path, simulated: RunResult
) -> None:
    """All of the server dies in round 2, as when its machine loses power; the nodes live on."""
    out = place / "killed"
    seen = len(federation.log("node-0"))
    first = submit(federation, project, out)
    federation.wait_for("round 2 is on its way", lambda: "ROUND 2]" in federation.log("node-0")[seen:], LIMIT)
    for server in federation.find("flwr-serverapp"):  # the process, and the program that has started it
        os.kill(server, signal.SIGKILL)
    federation.kill("superlink")
    federation.kill(first)
    assert rounds_done(out) == 2
    federation.start_superlink()
    second = submit(federation, project, out)
    run = finished(federation, second, out)
    assert "the run starts at round 2 of 5" in federation.log(second)
    assert same_model(run, simulated)
    assert run.rounds["accuracy"].tolist() == simulated.rounds["accuracy"].tolist()


def test_nodes_that_die_and_cheat_are_dropped_named_and_done_without(
    federation: Loopback, project: Path, place: Path, simulated: RunResult
) -> None:
    """The only node of full width dies in round 1 and is back in round 3; the others cheat once each."""
    cheating, out = place / "cheating", place / "faulty"
    shutil.copytree(project, cheating)
    shutil.copy(HOSTILE, cheating / "federation" / "client_app.py")
    name = submit(federation, cheating, out)
    federation.wait_for("client 3 trains in round 1", (federation.home / "at work").exists, LIMIT)
    federation.kill("node-3")
    federation.wait_for("round 3 has begun", lambda: rounds_done(out) == 3, LIMIT)
    federation.restart_node(3, CAPACITIES[3])
    (federation.home / "back").touch()
    run, log = finished(federation, name, out), federation.log(name)
    lost = {
        (one["round"], one["client"]): one["outcome"] for one in answers(out) if one["outcome"] != "accepted"
    }
    # When Flower notices that the node is gone and lets it in again is a matter of seconds.
    gone = {key: lost.pop(key) for key in [(1, 3), (2, 3), (3, 3)] if key in lost}
    assert lost == {(1, 0): "non-finite", (2, 1): "shape", (3, 2): "examples"}
    assert gone.keys() >= {(1, 3), (2, 3)}
    assert set(gone.values()) <= {"deadline", "offline", "absent"}
    lost |= gone
    for (round_index, client), kind in lost.items():
        line = rf"round {round_index}: client {client} \((node \d+|node none)\) is dropped, {kind}:"
        assert len(re.findall(line, log)) == 1
    assert log.count("is dropped") == len(lost)
    for round_index in (1, 2):
        line = rf"round {round_index}: [\d.]+% of the coordinates went untrained \(channels \d+-15 of"
        assert re.search(line, log)
    assert run.rounds["dropped"].notna().tolist() == [False, True, True, True, False]
    clean = [clean_accuracy(place, seed) for seed in range(1, 6)]
    noise = max(clean) - min(clean)
    assert abs(run.result["final_accuracy"] - simulated.result["final_accuracy"]) <= noise


def clean_accuracy(place: Path, seed: int) -> float:
    run = ww.run(ww.RunConfig(**{**RUN, "seed": seed}), out=place / f"seed-{seed}")
    return float(run.result["final_accuracy"])


def test_nodes_without_a_valid_key_or_certificate_are_refused(federation: Loopback, place: Path) -> None:
    make_keys(place / "foreign", [0])
    foreign, mine = place / "foreign", federation.project / "keys"
    tries: dict[str, tuple[str | Path, ...]] = {
        "unregistered": federation.trust(foreign / "node-0"),
        "keyless": ("--root-certificates", mine / "ca.crt"),
        "misled": (*federation.trust(mine / "node-0", foreign / "ca.crt"), "--max-retries", "0"),
        "plain": ("--insecure", "--max-retries", "0"),
    }
    before = nodes(federation)
    for port, (name, options) in zip(federation.node_ports[len(CAPACITIES) :], tries.items(), strict=True):
        federation.start_supernode(name, port, "partition-id=0 capacity=1.0", *options)
    said = {
        "unregistered": "Failed to activate SuperNode",
        "keyless": "All SuperNodes must be registered",
        "misled": "CERTIFICATE_VERIFY_FAILED",
        "plain": "Server disconnected",
    }
    for name, reason in said.items():
        process = federation.processes[name]
        federation.wait_for(f"{name} gives up", lambda process=process: process.poll() is not None)
        assert process.returncode != 0
        assert reason in federation.log(name)
    assert nodes(federation) == before


def nodes(federation: Loopback) -> set[str]:
    """Return the nodes that the SuperLink knows."""
    shown = json.loads(federation.flwr("supernode", "list", "deployment", "--format", "json"))
    return {node["node-id"] for node in shown["nodes"]}
