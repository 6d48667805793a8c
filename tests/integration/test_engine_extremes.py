"""Federations at the edge of what is allowed train, with finite numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from widthwise.engine import run_federation
from widthwise.engine.checkpoint import load_checkpoint
from widthwise.engine.executors import EXECUTORS
from widthwise.engine.state import ServerState
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig


@pytest.mark.parametrize("norm", ["none", "group", "batch"])
def test_clients_of_one_sample_and_one_class_train_at_every_width(norm, tmp_path):
    fed = build(
        RunConfig(
            task={
                "dataset": "digits",
                "model": "cnn-small",
                "norm": norm,
                "clients": 40,
                "partition": {"kind": "iid"},
                "limit": 40,
                "test_limit": 60,
            },
            method={"name": "hasfl", "warmup": 0, "adapt_every": 1},
            training={"rounds": 2, "cohort": 12, "local_epochs": 2, "batch_size": 4},
            engine={"executor": "serial", "recalibration_samples": 40},
            seed=1,
        )
    )
    assert (fed.task.class_counts().sum(axis=1) == 1).all()
    result = run_federation(fed, tmp_path / "run")
    assert np.isfinite(result.rounds[["loss", "train_loss", "estimate_mean"]]).all(axis=None)
    assert result.clients.loc[result.clients["participated"], "width"].nunique() >= 3


def test_coordinates_beyond_every_capacity_keep_their_first_values(tmp_path):
    """Proposition 3: with max p^max = 0.5 the outer halves never move, and the guarantee does not help."""
    fed = build(
        RunConfig(
            task={
                "dataset": "digits",
                "model": {"name": "mlp", "hidden": [8]},
                "clients": 4,
                "partition": {"kind": "iid"},
                "limit": 80,
            },
            capacity={"list": [0.25, 0.5, 0.5, 0.25]},
            method={"name": "hasfl"},
            training={"rounds": 3, "cohort": 3, "local_epochs": 1},
            engine={"executor": "serial"},
            seed=2,
        )
    )
    result = run_federation(fed, tmp_path / "run")
    reached = fed.space.num_params(fed.space.nested(0.5)) / fed.space.num_params(fed.space.full())
    assert result.result is not None
    assert math.isclose(result.result["ever_covered"], reached)
    saved = load_checkpoint(tmp_path / "run" / "checkpoint", fed)
    assert saved is not None
    first, kept = ServerState.initial(fed).params, fed.space.mask(fed.space.nested(0.5))
    for name, value in saved.params.items():
        assert torch.equal(value[~kept[name]], first[name][~kept[name]])
    assert not torch.equal(saved.params["1.weight"], first["1.weight"])


def test_no_more_workers_are_started_than_clients_train(tmp_path, monkeypatch):
    started = []

    class Counted(EXECUTORS["serial"].value):
        def __init__(self, runner, workers, address=None):
            started.append(workers)
            super().__init__(runner, workers, address)

    monkeypatch.setitem(EXECUTORS._entries, "serial", replace(EXECUTORS["serial"], value=Counted))
    for workers in (1, 100_000_000):
        config = RunConfig(
            task={
                "dataset": "digits",
                "model": "mlp",
                "clients": 3,
                "partition": {"kind": "iid"},
                "limit": 60,
            },
            capacity={"list": [1.0, 0.5, 0.5]},
            method={"name": "heterofl"},
            training={"rounds": 1, "cohort": 2},
            engine={"executor": "serial", "workers": workers},
        )
        run_federation(build(config), tmp_path / str(workers))
    assert started == [1, 2]
