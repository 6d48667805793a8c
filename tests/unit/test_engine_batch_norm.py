"""Batch norm over rounds: whose statistics are used where, and that none are averaged or kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from widthwise.core.errors import ConfigError
from widthwise.engine import run_federation
from widthwise.engine.disk import Disk
from widthwise.engine.evaluator import Evaluator
from widthwise.engine.fold import finish_round
from widthwise.engine.round import Broadcast, assignments, plan_round
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig
from widthwise.training import evaluate


def config(norm: str = "batch", engine: dict[str, Any] | None = None, **training: Any) -> RunConfig:
    return RunConfig(
        task={
            "dataset": "digits",
            "model": "cnn-small",
            "norm": norm,
            "clients": 4,
            "partition": {"kind": "iid"},
            "limit": 120,
            "test_limit": 100,
        },
        capacity={"list": [0.25, 0.5, 1.0, 1.0]},
        method={"name": "heterofl"},
        training={"rounds": 2, "cohort": 4, "local_epochs": 2, "batch_size": 8, **training},
        engine={"executor": "serial", "recalibration_samples": 60, **(engine or {})},
        seed=5,
    )


@pytest.fixture(scope="module")
def fed():
    return build(config())


@pytest.fixture(scope="module")
def trained(fed, tmp_path_factory):
    """Assignments, runner, reports and state of one round."""
    plan, state = plan_round(fed, ServerState.initial(fed))
    runner = ClientRunner(fed.task.train, fed.task.partition, fed.space, fed.method.objective)
    disk = Disk(tmp_path_factory.mktemp("run"))
    todo = list(assignments(fed, state, plan, disk))
    reports = [runner(Broadcast.of(state), (a,))[0] for a in todo]
    new, _ = finish_round(fed, state, iter(todo), reports, disk)
    return todo, runner, reports, new


def with_buffers(state: ServerState, value: float) -> ServerState:
    return replace(state, buffers={k: torch.full_like(v, value) for k, v in state.buffers.items()})


def test_clients_report_no_statistics_and_the_server_keeps_its_own(fed, trained):
    _, _, reports, new = trained
    for report in reports:
        assert report.delta.keys() == set(fed.space.parameters)
        assert not report.state
    initial = ServerState.initial(fed).buffers
    assert {name.rpartition(".")[2] for name in initial} == {
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }
    assert all(torch.equal(new.buffers[name], value) for name, value in initial.items())


def test_statistics_of_a_client_reach_neither_the_next_client_nor_its_own_next_round(fed, trained):
    todo, runner, reports, _ = trained
    broadcast = Broadcast.of(ServerState.initial(fed))
    again = runner(broadcast, (todo[-1],))[0]  # its module is full of other clients' statistics
    fresh = ClientRunner(fed.task.train, fed.task.partition, fed.space, fed.method.objective)
    (alone,) = fresh(broadcast, (todo[-1],))
    for report in (again, alone):
        assert all(torch.equal(report.delta[name], value) for name, value in reports[-1].delta.items())


@pytest.mark.parametrize("width", [0.25, 0.5, 1.0])
def test_evaluation_uses_statistics_of_the_very_slice(fed, trained, width: float):
    state = trained[3]
    spec = fed.space.nested(width)
    expected = Evaluator(fed)(state, spec)
    assert Evaluator(fed)(with_buffers(state, 3), spec) == expected  # what was stored has no influence
    shared = Evaluator(fed)
    for other in (1.0, 0.5, 0.25):  # nor have the widths that were evaluated before
        shared(state, fed.space.nested(other))
    assert shared(state, spec) == expected


def test_evaluation_differs_from_that_with_statistics_as_built(fed, trained):
    state = trained[3]
    module = fed.space.module(fed.space.full())
    module.load_state_dict({**state.params, **state.buffers})
    naive = evaluate(module, fed.task.test)
    assert Evaluator(fed)(state, fed.space.full()) != pytest.approx(tuple(naive))


def test_calibrated_module_has_the_statistics_of_the_sample_and_counts_no_batches(fed, trained):
    state, evaluator = trained[3], Evaluator(fed)
    module = evaluator.calibrated(state, fed.space.full())
    buffers = dict(module.named_buffers())
    first = nn.Conv2d(1, 16, 3, padding=1)
    first.load_state_dict({key: state.params[f"0.{key}"] for key in ("weight", "bias")})
    with torch.no_grad():
        features = first(fed.task.train.batch(evaluator._sample)[0])
    # 60 samples are one batch, so that their mean and unbiased variance are the statistics.
    torch.testing.assert_close(buffers["1.running_mean"], features.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(buffers["1.running_var"], features.var((0, 2, 3)), rtol=1e-4, atol=1e-5)
    assert buffers["1.num_batches_tracked"] == 0


@pytest.mark.parametrize(
    ("samples", "batch", "sizes"),
    [
        (60, 500, [60]),
        (61, 60, [31, 30]),  # not 60 and 1
        (60, 20, [20, 20, 20]),
        (5, 1, [3, 2]),
        (3, 2, [3]),
        (2, 1, [2]),
    ],
)
def test_sample_is_cut_into_batches_that_have_a_variance(
    fed, samples: int, batch: int, sizes: list[int]
) -> None:
    engine = fed.engine.model_copy(update={"recalibration_samples": samples, "eval_batch_size": batch})
    batches = Evaluator(replace(fed, engine=engine))._batches()
    assert [len(inputs) for inputs in batches] == sizes


def test_refuse_policy_names_the_statistics_and_accepts_other_norms() -> None:
    message = (
        r"training\.batch_norm is 'refuse', but the model has running statistics "
        r"\(1\.running_mean, 5\.running_mean\) that no two widths share\. Choose another norm"
    )
    with pytest.raises(ConfigError, match=message):
        build(config(batch_norm="refuse"))
    assert build(config("group", batch_norm="refuse")).training.batch_norm == "refuse"


def test_batch_norm_policy_is_part_of_the_identity_only_where_it_is_not_the_default() -> None:
    assert config(batch_norm="recalibrate").hash() == config().hash()
    assert config(batch_norm="refuse").hash() != config().hash()
    assert config().to_dict()["training"]["batch_norm"] == "recalibrate"


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_final_model_is_the_one_that_was_evaluated(norm: str, tmp_path) -> None:
    fed = build(config(norm))
    result = run_federation(fed, tmp_path / "run")
    model = fed.task.build_model(7)
    safetensors.torch.load_model(model, tmp_path / "run" / "final.safetensors")
    accuracy, loss = evaluate(model, fed.task.test, fed.engine.eval_batch_size)
    assert accuracy == result.result["final_accuracy"]
    assert loss == pytest.approx(result.result["final_loss"], rel=1e-5)
