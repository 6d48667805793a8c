"""Every method over a grid gives the global parameters of the simulation, to the bit, and the same costs."""

from __future__ import annotations

import json

import pytest
import yaml
from fake_grid import FakeGrid
from safetensors.torch import load_file

from widthwise.deploy import client_app, server_app
from widthwise.methods import METHODS
from widthwise.studies import load_config, run

NEEDED = {"random-budget": {"budget": 0.45}}
CAPACITIES = [0.25, 0.5, 0.75, 1.0]


def configuration(method, **changes):
    return {
        "task": {
            "dataset": "digits",
            "model": "cnn-small",
            "norm": "batch",
            "clients": 4,
            "partition": {"kind": "dirichlet", "alpha": 0.5},
            "limit": 160,
            "test_limit": 100,
        },
        "capacity": {"list": CAPACITIES},
        "method": method,
        "training": {
            "rounds": 3,
            "cohort": 3,
            "local_epochs": 1,
            "batch_size": 8,
            "lr": 0.05,
            "momentum": 0.0,
        },
        # Stacks round differently in their last bits; a node trains alone.
        "engine": {"executor": "serial", "stack": 1, "recalibration_samples": 60},
        "deploy": {"deadline": 5, "wait": 5},
        "seed": 11,
        **changes,
    }


def deployed(tmp_path, content, nodes=None, run_config=None):
    """Run a configuration over a fake grid; return the grid and the run folder."""
    file, out = tmp_path / "config.yaml", tmp_path / "deployed"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    run_config = {"out": str(out), **(run_config or {})}
    configs = nodes or {100 + i: {"partition-id": i, "capacity": c} for i, c in enumerate(CAPACITIES)}
    grid = FakeGrid(client_app(file), configs, run_config)
    server_app(file)(grid, grid.contexts[next(iter(configs))])
    return grid, out


def assert_same_run(ours, theirs):
    a, b = load_file(ours / "final.safetensors"), load_file(theirs / "final.safetensors")
    assert a.keys() == b.keys()
    assert all(a[name].equal(b[name]) for name in a)
    lines = [(folder / "rounds.jsonl").read_text().splitlines() for folder in (ours, theirs)]
    assert len(lines[0]) == len(lines[1])
    for one, other in zip(*lines, strict=True):
        assert {**json.loads(one), "seconds": 0} == {**json.loads(other), "seconds": 0}
    assert (
        json.loads((ours / "result.json").read_text())["config_hash"]
        == (json.loads((theirs / "result.json").read_text())["config_hash"])
    )


@pytest.mark.parametrize("name", METHODS.names())
def test_method_over_a_grid_gives_the_parameters_of_the_simulation(tmp_path, name):
    method = {"name": name, **NEEDED.get(name, {}), "adapt_every": 1, "warmup": 1}
    assert_runs_as_simulated(tmp_path, configuration(method))


ADAPTIVE = {"adapt_every": 1, "warmup": 1}
CONTROLLED = {"name": "hasfl", "objective": "control-variates", **ADAPTIVE}


@pytest.mark.parametrize(
    ("method", "compression"),
    [
        (CONTROLLED, "int8"),
        ({"name": "fiarse"}, {"kind": "topk", "share": 0.05}),
        ({"name": "fjord"}, "bf16"),
    ],
    ids=["int8", "topk", "bf16"],
)
def test_compressed_updates_over_a_grid_give_the_parameters_of_the_simulation(tmp_path, method, compression):
    assert_runs_as_simulated(tmp_path, configuration(method, compression=compression))


def test_private_run_over_a_grid_gives_the_parameters_of_the_simulation_and_a_warning(tmp_path, caplog):
    pytest.importorskip("dp_accounting", reason="pip install '.[privacy]'")
    content = configuration(
        {"name": "fjord", "weighting": "clients"},
        compression="int8",
        privacy={"clip": 0.1, "noise_multiplier": 0.5},
    )
    content["task"] |= {"norm": "none"}
    assert_runs_as_simulated(tmp_path, content)
    warnings = [record.getMessage() for record in caplog.records if "privacy" in record.getMessage()]
    assert len(warnings) == 1
    assert "not against nodes" in warnings[0]


def assert_runs_as_simulated(tmp_path, content):
    grid, out = deployed(tmp_path, content)
    run(load_config(tmp_path / "config.yaml"), tmp_path / "simulated")
    assert_same_run(out, tmp_path / "simulated")
    entries = [json.loads(line) for line in (out / "nodes.jsonl").read_text().splitlines()]
    assert {entry["outcome"] for entry in entries} == {"accepted"}
    # Bytes are those that the nodes count too, and of tensors those of the cost table; down come batch norms.
    for entry in entries:
        ((down, up),) = [log[2:] for log in grid.log if log[:2] == (entry["round"], entry["node"])]
        assert (entry["bytes_down"], entry["bytes_up"]) == (down, up)
        assert entry["tensors_up"] == entry["table_up"]
        assert 0 <= entry["tensors_down"] - entry["table_down"] <= 2 * 8 + 4 * 2 * (16 + 32)
