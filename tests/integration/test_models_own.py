"""Models of the user's own through the command line, through Python and from `transformers`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn
from typer.testing import CliRunner

import widthwise as ww
from widthwise.cli import app
from widthwise.core.errors import ConfigError
from widthwise.studies import build, load_config

ROOT = Path(__file__).parents[2]
RUN: dict[str, Any] = {
    "task": {
        "dataset": "digits",
        "model": "cnn-small",
        "norm": "batch",
        "clients": 4,
        "partition": {"kind": "iid"},
        "limit": 200,
        "test_limit": 50,
    },
    "capacity": {"list": [0.25, 0.5, 1.0, 1.0]},
    "method": {"name": "heterofl"},
    "training": {"rounds": 2, "cohort": 4, "local_epochs": 2, "batch_size": 16, "lr": 0.05},
    "engine": {"executor": "serial"},
}
NETS = """
from torch import nn


def make(num_classes, input_shape, hidden=12):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))


def broken():
    return len(5)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with a configuration and the module ``nets_of_mine``."""
    (tmp_path / "nets_of_mine.py").write_text(NETS)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(RUN))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # The page of a run is tested elsewhere, and takes seconds.
    monkeypatch.setattr("widthwise.report.build_report", lambda runs, out: out)
    monkeypatch.setattr("widthwise.report.build_study_report", lambda folder, out=None: folder)
    yield tmp_path
    sys.modules.pop("nets_of_mine", None)


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_run_trains_the_model_of_a_factory_and_resumes_it(folder: Path) -> None:
    first = call("run", "run.yaml", "--model", "nets_of_mine:make", "--out", "one")
    assert first.exit_code == 0, first.output
    stored = yaml.safe_load((folder / "one" / "config.yaml").read_text())
    assert (stored["task"]["model"], stored["task"]["norm"]) == ("nets_of_mine:make", None)
    again = call("run", "one/config.yaml", "--out", "one", "--resume")
    assert again.exit_code == 0, again.output
    other = call("run", "run.yaml", "--model", "nets_of_mine:other", "--out", "one", "--resume")
    assert other.exit_code == 2
    # Options are keyword arguments, and part of the identity.
    wider = 'task.model={name: "nets_of_mine:make", hidden: 20}'
    refused = call("run", "run.yaml", "--set", wider, "--set", "task.norm=null", "--out", "one", "--resume")
    assert refused.exit_code == 2
    assert "it holds a run of another configuration" in refused.output


def test_study_finds_the_factory_in_its_worker_processes(folder: Path) -> None:
    base = {**RUN, "task": {**RUN["task"], "model": "nets_of_mine:make", "norm": None}}
    method = base.pop("method")
    study = {"base": base, "methods": {"mine": {"method": method}}, "seeds": [1]}
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    done = call("study", "study.yaml", "--out", "study")
    assert done.exit_code == 0, done.output
    assert len(list((folder / "study").rglob("result.json"))) == 1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nets_of_mine:makes", "has no 'makes'. Did you mean 'make'?"),
        ("no_such_nets:make", "there is no module 'no_such_nets'. Run from the folder"),
        ("nets_of_mine:broken", "it raised TypeError: object of type 'int' has no len()"),
        ("mobilenet", "model is 'mobilenet', but no such name is known. Did you mean 'mobilenetv2'?"),
    ],
)
def test_run_refuses_models_that_cannot_be_built(folder: Path, model: str, message: str) -> None:
    result = call("run", "run.yaml", "--model", model, "--out", "none")
    assert result.exit_code == 2
    assert message in result.output
    assert not (folder / "none").exists()


def test_cost_takes_a_factory_on_the_shapes_of_a_data_set(folder: Path) -> None:
    result = call("cost", "nets_of_mine:make", "--task", "digits", "--widths", "1", "--json")
    assert json.loads(result.stdout)[0]["params"] == 64 * 12 + 12 + 12 * 10 + 10


@pytest.mark.parametrize("model", ["gpt", "lstm-lm"])
def test_cost_takes_text_models_on_text(model: str) -> None:
    assert len(json.loads(call("cost", model, "--widths", "0.5,1", "--json").stdout)) == 2


class Mine(nn.Module):
    """A model that answers with a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.net(x)}


@pytest.mark.parametrize("method", ["heterofl", "fjord"])
def test_module_as_an_object_is_trained_from_its_weights_and_is_not_changed(
    method: str, tmp_path: Path
) -> None:
    module = Mine()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    task = {**RUN["task"], "model": module, "norm": None}
    config = ww.RunConfig(**{**RUN, "task": task, "method": {"name": method}})
    fed = build(config)
    assert all(torch.equal(value, before[n]) for n, value in fed.task.build_model(7).state_dict().items())
    result = ww.run(config, tmp_path / "run")
    first, last = result.rounds["train_loss"]
    assert last < first
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    resumed = ww.run(
        ww.RunConfig(**{**RUN, "task": task, "method": {"name": method}}), tmp_path / "run", resume=True
    )
    assert resumed.result == result.result


def test_vision_transformer_of_transformers_learns_on_the_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    changes = ["training.rounds=3", "engine.executor=serial", "engine.eval_every=1", "task.limit=300"]
    config = load_config(
        "examples/digits-hf-vit.yaml", [*changes, "task.partition={kind: iid}", "training.local_epochs=2"]
    )
    result = ww.run(config, tmp_path / "run")
    losses = result.rounds["train_loss"].to_numpy()
    assert losses[-1] < losses[0]
    assert np.isfinite(result.rounds["loss"]).all()
    assert result.result["ever_covered"] == 1.0


def refused(model: torch.nn.Module, tmp_path: Path) -> str:
    """Return why a run of a model is refused; nothing has been written then."""
    config = ww.RunConfig(
        task={"dataset": "digits", "model": model, "partition": {"kind": "iid"}, "clients": 4},
        method={"name": "heterofl"},
        training={"rounds": 1, "cohort": 2},
    )
    with pytest.raises(ConfigError) as caught:
        ww.run(config, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    return str(caught.value)


def test_run_refuses_narrow_clients_for_a_model_that_cannot_be_cut(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    assert "but no channel of the model can be cut: every client would train" in refused(model, tmp_path)


def test_run_refuses_a_model_of_which_nothing_is_trained(tmp_path: Path) -> None:
    hidden = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 10))
    model = torch.nn.Sequential(torch.nn.Flatten(), hidden).requires_grad_(False)
    assert "no parameter of the model has requires_grad=True" in refused(model, tmp_path)
