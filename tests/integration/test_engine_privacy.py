"""Private runs: what is released, what is refused, and the same bits everywhere."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from interruption import interrupt_round
from typer.testing import CliRunner

from widthwise.cli import app
from widthwise.core.errors import ConfigError, DivergenceError
from widthwise.engine import run_federation
from widthwise.engine.disk import Disk
from widthwise.engine.fold import finish_round
from widthwise.engine.private import holders
from widthwise.engine.round import Broadcast, allocate, assignments, plan_round
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.privacy import accountant, clip_factor, epsilon
from widthwise.slicing import Moment
from widthwise.studies import PlannedRun, build, merge, run
from widthwise.studies.config import RunConfig
from widthwise.studies.estimate import estimate_study

pytest.importorskip("dp_accounting", reason="pip install '.[privacy]'")
CAPACITIES = [0.25, 0.5, 0.75, 1.0, 0.5, 0.25, 1.0, 0.25]
BASE = {
    "task": {
        "dataset": "digits",
        "model": {"name": "mlp", "hidden": [16, 8]},
        "clients": 8,
        "partition": {"kind": "iid"},
        "limit": 240,
        "test_limit": 60,
    },
    "capacity": {"list": CAPACITIES},
    "method": {"name": "heterofl", "weighting": "clients"},
    "training": {"rounds": 5, "cohort": 4, "local_epochs": 1, "batch_size": 16, "lr": 0.05, "momentum": 0.0},
    "engine": {"executor": "serial", "checkpoint_every": 2, "eval_every": 3},
    "seed": 11,
    "privacy": {"clip": 0.01, "noise_multiplier": 0.5},
}


def config(**changes: object) -> RunConfig:
    return RunConfig(**merge(BASE, changes))


def content(folder: Path) -> list[object]:
    """Return all that must be equal: everything but wall time."""
    result = json.loads((folder / "result.json").read_text())
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for record in (result, *rounds):
        del record["seconds"]
    files = sorted(folder.glob("checkpoint/*.safetensors"))
    tensors = {p.name: {n: v.tolist() for n, v in safetensors.torch.load_file(p).items()} for p in files}
    return [result, rounds, tensors]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"method": {"name": "fjord", "weighting": "clients"}},
        {"method": {"name": "fiarse", "weighting": "clients"}, "compression": "int8"},
    ],
)
def test_run_gives_the_same_bits_when_interrupted_and_resumed_in_another_executor(
    tmp_path, monkeypatch, changes
):
    run(config(**changes), tmp_path / "serial")
    expected = content(tmp_path / "serial")
    interrupt_round(monkeypatch, 4)
    with pytest.raises(KeyboardInterrupt):
        run(config(**changes), tmp_path / "resumed")
    monkeypatch.undo()
    other = {"engine.executor": "process", "engine.workers": 2} if "compression" in changes else {}
    run(config(**changes, **other), tmp_path / "resumed", resume=True)
    assert content(tmp_path / "resumed") == expected


def test_epsilon_is_in_every_round_in_the_result_and_in_a_dry_run(tmp_path):
    settings = config()
    (estimate,) = estimate_study([PlannedRun(tmp_path / "run", "heterofl", settings)])
    result = run(settings, tmp_path / "run")
    wanted = [epsilon(0.5, 1e-5, 8, 4, t + 1) for t in range(5)]
    assert result.rounds["epsilon"].tolist() == wanted
    assert result.result["privacy"] == {
        "epsilon": wanted[-1],
        "clip": 0.01,
        "noise_multiplier": 0.5,
        "delta": 1e-5,
        "neighbours": "replace one client",
        "clients": 8,
        "cohort": 4,
    }
    assert estimate.epsilon == wanted[-1]
    assert estimate.bytes == result.result["bytes_up"] + result.result["bytes_down"]
    assert set(result.rounds["clipped"]) == {1.0}  # a step of SGD is longer than that
    ample = run(config(**{"privacy.clip": 1e6}), tmp_path / "ample")
    assert set(ample.rounds["clipped"]) == {0.0}


def test_round_releases_the_noisy_sum_over_the_expected_holders(tmp_path):
    """The engine against the formula, coordinate by coordinate in a slow loop."""
    fed = build(config(**{"method": {"name": "fedrolex", "weighting": "clients"}}))
    state = replace(ServerState.initial(fed), round_index=3)
    plan, state = plan_round(fed, state)
    todo = list(assignments(fed, state, plan, Disk(tmp_path)))
    runner = ClientRunner(fed.task.train, fed.task.partition, fed.space, fed.method.objective)
    reports = [runner(Broadcast.of(state), (one,))[0] for one in todo]
    new, outcome = finish_round(fed, state, iter(todo), reports, Disk(tmp_path))
    generator = fed.seeds.at("noise", 3).torch()
    for name, value in state.params.items():
        noise = 0.01 * 0.5 * torch.randn(value.shape, generator=generator, dtype=torch.float64)
        total, count = torch.zeros(value.shape, dtype=torch.float64), torch.zeros(value.shape)
        for report in reports:
            scaled = {n: clip_factor(report.delta, 0.01) * v.double() for n, v in report.delta.items()}
            fed.space.scatter_add_({name: total}, {name: scaled[name]}, report.spec)
        for client, capacity in enumerate(CAPACITIES):
            moment = Moment(client, 3, fed.seeds.at("selection"), state.params)
            count += fed.space.mask(fed.method.selector.select(fed.space, capacity, moment))[name]
        assert bool((count > 0).all())
        expected = value.double() + (total + noise) / (count * 4 / 8).clamp(min=1)
        torch.testing.assert_close(new.params[name].double(), expected, rtol=1e-6, atol=1e-7)
    assert outcome.coverage == 1  # noise falls on what the cohort does not hold, too


def test_noise_falls_also_where_nobody_of_the_cohort_trains(tmp_path):
    fed = build(config())
    _, state = plan_round(fed, ServerState.initial(fed))
    new, outcome = finish_round(fed, state, iter(()), [], Disk(tmp_path))
    assert outcome.clipped is None
    assert all(bool((new.params[name] != value).all()) for name, value in state.params.items())


def test_what_nobody_can_hold_gets_no_noise(tmp_path):
    fed = build(config(**{"method.policy": "smallest-tier"}))
    _, state = plan_round(fed, ServerState.initial(fed))
    new, outcome = finish_round(fed, state, iter(()), [], Disk(tmp_path))
    held = holders(fed, state)
    for name, mask in fed.space.mask(fed.space.nested(0.25)).items():
        assert torch.equal(held[name], 8.0 * mask)
        assert torch.equal(new.params[name] != state.params[name], mask)
    assert outcome.coverage == outcome.ever_covered < 1


def test_width_of_a_client_does_not_depend_on_who_else_is_in_the_cohort():
    fed = build(config(**{"method": {"name": "fjord", "weighting": "clients"}}))
    state = ServerState.initial(fed)
    plan, after = plan_round(fed, state)
    assert len(set(after.policy.widths)) > 2
    for client in range(8):
        alone, policy = allocate(fed, state.policy, replace(plan.cohort, client_ids=(client,)))
        assert alone == {client: after.policy.widths[client]}
        assert np.array_equal(policy.widths, after.policy.widths)


REFUSED = [
    (
        {"method.weighting": "examples"},
        "method.weighting is 'examples', but under privacy every client counts",
    ),
    (
        {"method.objective": "control-variates"},
        "method.objective is 'control-variates', but privacy covers the update alone, and its client_control",
    ),
    (
        {"method": {"name": "hasfl", "weighting": "clients"}},
        "method.policy is 'adaptive', but it follows what is",
    ),
    (
        {"method": {"name": "random-budget", "budget": 0.4, "weighting": "clients"}},
        "method.policy is 'random-budget', but the widths of its cohort depend on each other",
    ),
    (
        {"method.selector": "random-aligned"},
        "method.selector is 'random-aligned', but privacy needs slices of a round that lie inside each other",
    ),
    ({"control": {"matched_to": "x"}}, "control.matched_to is 'x', but a matched control shares a budget"),
    ({"privacy.delta": 0.2}, "privacy.delta is 0.2, but it must be below 1 / clients (8)"),
    ({"privacy.clip": 0}, "privacy.clip is 0, but it should be greater than 0"),
    ({"privacy.clip": float("inf")}, "privacy.clip is inf, but it should be less than or equal to 1000000"),
    (
        {"privacy.noise_multiplier": 1e-300},
        "privacy.noise_multiplier is 1e-300, but it should be greater than or equal to 0.000001",
    ),
    (
        {"privacy.noise_multiplyer": 1},
        "is 1, but there is no such key. Did you mean 'privacy.noise_multiplier'?",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[next(iter(c)) for c, _ in REFUSED])
def test_what_would_pass_by_the_noise_is_refused(changes, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        config(**changes)


def test_all_that_is_wrong_with_a_method_is_named_at_once():
    with pytest.raises(ConfigError) as caught:
        config(**{"method": {"name": "hasfl", "objective": "control-variates"}})
    assert [line.split(" is ")[0] for line in str(caught.value).splitlines()] == [
        "method.weighting",
        "method.objective",
        "method.policy",
    ]


def test_selectors_that_follow_the_model_or_share_a_draw_are_taken():
    for selector in ({"selector": "magnitude"}, {"selector": "random-aligned", "shared_draw": True}):
        assert config(method={"name": "heterofl", "weighting": "clients", **selector}).privacy is not None


def test_statistics_of_batches_are_refused():
    settings = config(**{"task.model": "cnn-small", "task.norm": "batch"})
    with pytest.raises(
        ConfigError, match=r"running statistics \(.*\), which are estimated from the clients'"
    ):
        build(settings)


def test_remedy_for_a_model_that_noise_has_ruined_is_less_noise(tmp_path):
    fed = build(config(**{"engine.eval_every": 1}))
    fed = replace(fed, privacy=fed.privacy.model_copy(update={"clip": 1e30}))
    with pytest.raises(DivergenceError, match=r"Lower privacy\.clip or privacy\.noise_multiplier\.$"):
        run_federation(fed, tmp_path / "run")


def test_only_some_of_many_statistics_are_named():
    settings = config(**{"task.model": "resnet20", "task.norm": "batch"})
    with pytest.raises(ConfigError, match=r"running_mean and \d+ more\), which"):
        build(settings)


def test_run_is_refused_before_anything_is_written_when_the_accountant_is_not_installed(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    accountant._of_a_round.cache_clear()
    with pytest.raises(ConfigError, match="package 'dp-accounting' is not installed"):
        run(config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_updates_are_clipped_after_they_have_been_decompressed(tmp_path):
    """Rounding at random can make an update longer: what is summed must be short all the same."""
    fed = build(config(compression={"kind": "topk", "share": 1.0}))
    fed = replace(fed, privacy=fed.privacy.model_copy(update={"noise_multiplier": 1e-9}))
    plan, state = plan_round(fed, ServerState.initial(fed))
    todo = list(assignments(fed, state, plan, Disk(tmp_path)))
    runner = ClientRunner(
        fed.task.train, fed.task.partition, fed.space, fed.method.objective, compression=fed.compression
    )
    answers = [runner(Broadcast.of(state), (one,))[0] for one in todo]
    sent = replace(answers[0], delta={**answers[0].delta, "values": 1e6 * answers[0].delta["values"]})
    moved = []
    for answer in (answers[0], sent):
        new, _ = finish_round(fed, state, iter(todo[:1]), [answer], Disk(tmp_path))
        moved.append(
            sum(float((new.params[n] - v).double().square().sum()) for n, v in state.params.items()) ** 0.5
        )
    assert moved[1] == pytest.approx(moved[0], rel=1e-3)
    assert moved[1] <= 0.01 * 1.001


def test_dry_run_and_run_tell_the_epsilon(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(config(**{"training.rounds": 1}).to_dict()))
    told = CliRunner().invoke(app, ["run", str(file), "--dry-run"])
    assert re.search(r"\d+\.\d\d at 1e-05", told.stdout)
    shown = CliRunner().invoke(app, ["run", str(file), "--dry-run", "--json"])
    (planned,) = json.loads(shown.stdout)["runs"]
    assert planned["epsilon"] == epsilon(0.5, 1e-5, 8, 4, 1)
    done = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "run")])
    assert done.exit_code == 0
    assert f"epsilon {planned['epsilon']:.2f} at delta 1e-05" in " ".join(done.stderr.split())
