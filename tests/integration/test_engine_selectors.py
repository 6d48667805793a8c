"""Federated rounds under every selector: they learn, count their cost, and end in the same bits."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import safetensors.torch
import torch
from interruption import interrupt_round

from widthwise.core.records import ClientReport
from widthwise.core.traits import Trait
from widthwise.engine import Federation, run_federation
from widthwise.engine.accounting import client_cost
from widthwise.engine.codec import decode_report, encode_report
from widthwise.engine.costs import slice_cost
from widthwise.engine.disk import Disk
from widthwise.engine.evaluator import Evaluator
from widthwise.engine.fold import RoundOutcome, finish_round
from widthwise.engine.round import Assignment, Broadcast, assignments, dispatch, plan_round
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.methods import build_method
from widthwise.slicing import SELECTORS, Moment
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig
from widthwise.training import OBJECTIVES

ROUNDS = 4
METHODS = ["fedrolex", "federated-dropout", "fiarse", "heterofl-importance"]


@cache
def federation() -> Federation:
    """Return a small run without a full-width client, so that what slices reach makes a difference."""
    return build(
        RunConfig(
            task={
                "dataset": "digits",
                "model": {"name": "mlp", "hidden": [16, 16]},
                "clients": 6,
                "partition": {"kind": "iid"},
                "limit": 360,
                "test_limit": 100,
            },
            capacity={"list": [0.25, 0.5, 0.75, 0.75, 0.5, 0.25]},
            method={"name": "fiarse"},
            training={
                "rounds": ROUNDS,
                "cohort": 4,
                "local_epochs": 4,
                "batch_size": 8,
                "lr": 0.1,
                "momentum": 0.0,
            },
            engine={"executor": "serial", "checkpoint_every": 1, "eval_every": 2},
            seed=3,
        )
    )


def with_method(**options: Any) -> Federation:
    return replace(federation(), method=build_method(options))


def learning(method: str) -> Federation:
    """Return a run that also keeps controls and estimates, all that a checkpoint can hold."""
    chosen = {"name": method.removesuffix("-importance")}
    if method.endswith("-importance"):
        chosen["selector"] = "importance"
    return with_method(**chosen, objective="control-variates", warmup=0, adapt_every=1)


def content(folder: Path) -> dict[str, Any]:
    """Return all that must be equal: everything but wall time."""
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    for record in (result, *rounds):
        del record["seconds"]
    state = safetensors.torch.load_file(folder / "checkpoint" / f"round-{ROUNDS:06d}.safetensors")
    return {
        "result": result,
        "rounds": rounds,
        "clients": pd.read_parquet(folder / "clients.parquet").fillna(-1).to_dict("list"),
        "state": {name: value.tolist() for name, value in state.items()},
    }


@pytest.fixture(scope="module", params=METHODS)
def finished(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp(request.param) / "run"
    run_federation(learning(request.param), folder)
    return request.param, content(folder)


def test_rounds_learn_digits_and_record_what_was_trained(finished: tuple[str, dict[str, Any]]) -> None:
    _, found = finished
    accuracy = [r["accuracy"] for r in found["rounds"] if r["accuracy"] is not None]
    assert accuracy[-1] > 0.2  # ten classes, 100 samples: chance is 0.1 with a standard deviation of 0.03
    covered = [r["ever_covered"] for r in found["rounds"]]
    assert covered == sorted(covered)
    assert covered[0] == found["rounds"][0]["coverage"] < 1
    assert set(found["result"]["width_accuracy"]) == {"0.25", "0.5", "0.75"}


def test_run_ends_in_the_same_bits_when_interrupted_and_resumed_elsewhere(
    finished: tuple[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, expected = finished
    calls = interrupt_round(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        run_federation(learning(method), tmp_path / "run")
    # Starting processes takes a while: in them, the two whose slices are most of a message.
    elsewhere = "process" if method in ("federated-dropout", "fiarse") else "serial"
    engine = federation().engine.model_copy(update={"executor": elsewhere, "workers": 2})
    run_federation(replace(learning(method), engine=engine), tmp_path / "run", resume=True)
    assert len(calls) == 1 + ROUNDS
    assert content(tmp_path / "run") == expected


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def planned(fed: Federation, state: ServerState, disk: Disk) -> tuple[list[Assignment], ServerState]:
    plan, state = plan_round(fed, state)
    return list(assignments(fed, state, plan, disk)), state


def one_round(
    fed: Federation, state: ServerState, disk: Disk
) -> tuple[list[Assignment], list[ClientReport], ServerState, RoundOutcome]:
    todo, state = planned(fed, state, disk)
    runner = ClientRunner(fed.task.train, fed.task.partition, fed.space, fed.method.objective)
    reports = [runner(Broadcast.of(state), (a,))[0] for a in todo]
    return todo, reports, *finish_round(fed, state, iter(todo), reports, disk)


def test_a_masked_client_receives_zeros_outside_its_mask_and_reports_none(disk: Disk) -> None:
    fed = with_method(name="fiarse", objective="control-variates")
    state = ServerState.initial(fed)
    for _ in range(2):  # in the second round the controls are no longer zero
        todo, reports, new, outcome = one_round(fed, state, disk)
        for a, report in zip(todo, reports, strict=True):
            task = dispatch(fed.space, Broadcast.of(state), a)
            mask = a.spec.mask.kept
            assert mask
            for tensors in (task.params, *task.state.values(), report.delta, *report.state.values()):
                assert all(not tensors[name][~kept].any() for name, kept in mask.items())
            assert all(torch.equal(task.params[n][m], state.params[n][m]) for n, m in mask.items())
        masks = [a.spec.mask.kept for a in todo]
        for name, value in new.params.items():
            trained = (
                torch.stack([m[name] for m in masks]).any(0) if name in masks[0] else torch.ones(value.shape)
            )
            assert torch.equal(value[trained == 0], state.params[name][trained == 0])
            assert torch.equal(new.ever_covered[name] | (trained > 0), new.ever_covered[name])
        state = new
    assert outcome.ever_covered < 1


def test_masked_compute_costs_the_macs_of_the_full_model_and_the_bytes_of_its_values(disk: Disk) -> None:
    fed = with_method(name="fiarse")
    todo, reports, _, _ = one_round(fed, ServerState.initial(fed), disk)
    # 64 x 16, 16 x 16 and 16 x 10 weights have a bit each: 1440 / 8 bytes of mask.
    for a, report in zip(todo, reports, strict=True):
        cost = client_cost(fed, a, report.num_examples)
        width = fed.task.capacities[a.client_id]
        assert cost.macs == 3 * (64 * 16 + 16 * 16 + 16 * 10) * report.num_examples * 4
        assert cost.bytes_up == fed.space.upload_bytes(fed.space.nested(width))
        assert cost.bytes_down == cost.bytes_up + 180


@pytest.mark.parametrize("entry", [e for e in SELECTORS if e.name != "magnitude"], ids=lambda e: e.name)
def test_dense_selectors_cost_what_nested_slices_cost(entry: Any, disk: Disk) -> None:
    fed = with_method(name="heterofl", selector=entry.name)
    todo, reports, _, _ = one_round(fed, ServerState.initial(fed), disk)
    for a, report in zip(todo, reports, strict=True):
        nested = fed.space.nested(float(fed.task.capacities[a.client_id]))
        expected = slice_cost(fed.space, fed.method.objective, nested, nested, report.num_examples * 4)
        assert client_cost(fed, a, report.num_examples) == expected


def test_report_of_a_masked_client_survives_the_wire(disk: Disk) -> None:
    fed = with_method(name="fiarse")
    _, reports, _, _ = one_round(fed, ServerState.initial(fed), disk)
    for report in reports:
        back = decode_report(encode_report(report))
        assert back.spec.width == report.spec.width
        assert back.spec.key() == report.spec.key()
        ours, theirs = report.spec.mask, back.spec.mask
        assert theirs.thresholds == ours.thresholds
        assert all(torch.equal(theirs.kept[name], ours.kept[name]) for name in ours.kept)
        assert all(torch.equal(back.delta[name], report.delta[name]) for name in report.delta)


@pytest.mark.parametrize("selector", SELECTORS.names())
def test_holders_are_the_clients_that_can_ever_train_a_coordinate(selector: str) -> None:
    fed = with_method(name="scaffold", policy="capacity", selector=selector)
    holders = fed.holders
    # Widths 0.25, 0.5 and 0.75, two clients each; the second layer joins 16 channels to 16.
    middle = holders["3.weight"]
    if selector == "nested":
        assert middle[0, 0] == 6
        assert middle[3, 4] == 4
        assert middle[15, 15] == 1  # nobody: 1 keeps the quotient at 0
    elif selector == "rolling":
        # (i, j) is in a window of k if and only if i and j are less than k apart on the circle of 16.
        assert [int(middle[0, j]) for j in (0, 3, 4, 7, 8)] == [6, 6, 4, 4, 2]
    else:
        assert bool((middle == 6).all())
    assert bool((holders["5.bias"] == 6).all())


@pytest.mark.parametrize("selector", SELECTORS.names())
def test_tiers_are_evaluated_on_the_slice_that_the_selector_ships(selector: str) -> None:
    fed = with_method(name="heterofl", selector=selector)
    state = ServerState.initial(fed)
    evaluator, found = Evaluator(fed), {}
    for tier in (0.25, 0.5, 0.75):
        spec = fed.method.selector.ship(fed.space, tier, state.params)
        assert (spec.key() == fed.space.nested(tier).key()) == (selector not in ("importance", "magnitude"))
        found[f"{tier:g}"] = evaluator(state, spec)[0]
        if spec.mask is not None:
            assert evaluator(state, spec)[1] != evaluator(state, fed.space.full())[1]
    assert evaluator.tiers(state) == found


@pytest.mark.parametrize("selector", ["rolling", "random-aligned", "importance"])
def test_distillation_gives_the_teacher_a_slice_that_holds_the_student(selector: str, disk: Disk) -> None:
    fed = with_method(name="fjord", selector=selector)
    state = ServerState.initial(fed)
    for t in range(3):
        todo, reports, state, _ = one_round(fed, state, disk)
        assert len(reports) == 4
        for a in todo:
            assert a.context_spec.width == fed.task.capacities[a.client_id]
            assert all(set(a.spec.kept[g]) <= set(a.context_spec.kept[g]) for g in a.spec.kept)
        assert state.round_index == t + 1


def test_random_slices_depend_on_the_seed_of_the_run_and_on_no_other_stream(disk: Disk) -> None:
    fed = with_method(name="federated-dropout")
    state = ServerState.initial(fed)
    todo, _ = planned(fed, state, disk)
    for a in todo:
        moment = Moment(a.client_id, 0, fed.seeds.at("selection"), state.params)
        assert fed.method.selector.select(fed.space, a.spec.width, moment).key() == a.spec.key()
    other = replace(fed, seed=4)
    again = {a.client_id: a.spec.key() for a in planned(other, state, disk)[0]}
    assert any(again.get(a.client_id, a.spec.key()) != a.spec.key() for a in todo)


@pytest.mark.parametrize("selector", [e.name for e in SELECTORS if Trait.COMMON in e.value().traits])
def test_common_core_is_measured_where_a_round_has_one(selector: str, disk: Disk) -> None:
    fed = with_method(name="hasfl", selector=selector, estimator="common-core", warmup=0, adapt_every=1)
    todo, _, state, _ = one_round(fed, ServerState.initial(fed), disk)
    taking_part = [a.client_id for a in todo]
    assert state.measured
    assert (state.estimates[taking_part] != 1).all()
    assert OBJECTIVES["plain"].value() == fed.method.objective
