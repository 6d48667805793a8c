"""Runs whose updates are compressed: the same bits everywhere, and the bytes counted are those sent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import safetensors.torch
import torch
from interruption import interrupt_round
from typer.testing import CliRunner

from widthwise.cli import app
from widthwise.compression import COMPRESSIONS, decompress
from widthwise.core.errors import ConfigError, SliceError
from widthwise.core.records import CompressedReport
from widthwise.engine import loop
from widthwise.engine.accounting import client_cost
from widthwise.engine.codec import decode_answers, encode_answers
from widthwise.engine.disk import Disk
from widthwise.engine.executors.serial import SerialExecutor
from widthwise.engine.fold import finish_round
from widthwise.engine.round import Broadcast, assignments, plan_round
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.slicing import num_values
from widthwise.studies import PlannedRun, build, run
from widthwise.studies.config import RunConfig
from widthwise.studies.estimate import estimate_study

TASK = {
    "dataset": "digits",
    "model": {"name": "mlp", "hidden": [16, 8]},
    "clients": 8,
    "partition": {"kind": "iid"},
    "limit": 240,
    "test_limit": 60,
}
HASFL = {"name": "hasfl", "warmup": 2, "adapt_every": 2, "objective": "control-variates"}
METHODS = {
    "control variates": HASFL,
    "stacked": {"name": "heterofl"},
    "masked": {"name": "fiarse"},
    "teacher": {"name": "fjord"},
    "common core": {"name": "hasfl", "warmup": 2, "adapt_every": 2, "estimator": "common-core"},
}
KINDS = {"bf16": "bf16", "int8": "int8", "topk": {"kind": "topk", "share": 0.2}}


def config(method: str, kind: str, rounds: int = 6, **engine: object) -> RunConfig:
    return RunConfig(
        task=TASK,
        capacity={"list": [0.25, 0.5, 0.75, 1.0, 0.5, 0.25, 1.0, 0.25]},
        method=METHODS[method],
        training={
            "rounds": rounds,
            "cohort": 4,
            "local_epochs": 1,
            "batch_size": 16,
            "lr": 0.05,
            "momentum": 0.0,
        },
        engine={"executor": "serial", "checkpoint_every": 2, "eval_every": 3, **engine},
        seed=11,
        compression=KINDS[kind],
    )


def content(folder: Path) -> list[object]:
    """Return all that must be equal: everything but wall time."""
    result = json.loads((folder / "result.json").read_text())
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for record in (result, *rounds):
        del record["seconds"]
    files = sorted([*folder.glob("clients/*.safetensors"), *folder.glob("checkpoint/*.safetensors")])
    tensors = {p.name: {n: v.tolist() for n, v in safetensors.torch.load_file(p).items()} for p in files}
    return [result, rounds, pd.read_parquet(folder / "clients.parquet").to_dict(), tensors]


@pytest.mark.parametrize(
    ("method", "kind"),
    [("control variates", "int8"), ("stacked", "int8"), ("masked", "topk"), ("common core", "bf16")],
)
def test_run_gives_the_same_bits_when_interrupted_and_resumed_in_another_executor(
    tmp_path, monkeypatch, method, kind
):
    run(config(method, kind), tmp_path / "serial")
    expected = content(tmp_path / "serial")
    interrupt_round(monkeypatch, 4)
    with pytest.raises(KeyboardInterrupt):
        run(config(method, kind), tmp_path / "resumed")
    monkeypatch.undo()
    other = {"executor": "process", "workers": 2} if method == "control variates" else {}
    run(config(method, kind, **other), tmp_path / "resumed", resume=True)
    assert repr(content(tmp_path / "resumed")) == repr(expected)


class Listening(SerialExecutor):
    """Notes the bytes of all tensors that clients send."""

    sent: list[int]

    def run(self, broadcast, assignments):
        for answer in super().run(broadcast, assignments):
            assert isinstance(answer, CompressedReport)
            pieces = [p for group in (answer.delta, *answer.state.values()) for p in group.values()]
            self.sent.append(sum(piece.nbytes for piece in pieces))
            yield answer


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_counted_are_those_that_are_sent_and_those_of_a_dry_run(
    tmp_path, monkeypatch, method, kind
):
    monkeypatch.setattr(Listening, "sent", [], raising=False)
    monkeypatch.setattr(loop, "EXECUTORS", {"serial": type("Entry", (), {"value": Listening})})
    settings = config(method, kind, rounds=2)
    (estimate,) = estimate_study([PlannedRun(tmp_path / "run", method, settings)])
    result = run(settings, tmp_path / "run")
    rows = result.clients[result.clients["participated"]]
    assert sorted(rows["bytes_up"]) == sorted(Listening.sent)
    assert result.result["bytes_up"] == result.rounds["bytes_up"].sum() == sum(Listening.sent)
    assert result.result["bytes_up"] < 4 * result.rounds["params"].sum() * (
        1 + (method == "control variates")
    )
    # Until the first adaptation the simulation of a dry run is exact.
    assert estimate.bytes == result.result["bytes_up"] + result.result["bytes_down"]


@pytest.mark.parametrize("method", ["control variates", "masked"])
def test_message_holds_the_compressed_form_and_little_else(tmp_path, method):
    fed = build(config(method, "int8"))
    plan, state = plan_round(fed, ServerState.initial(fed))
    todo = list(assignments(fed, state, plan, Disk(tmp_path)))
    objective = fed.method.objective
    runner = ClientRunner(
        fed.task.train, fed.task.partition, fed.space, objective, compression=fed.compression
    )
    for assignment in todo:
        (answer,) = runner(Broadcast.of(state), (assignment,))
        message = encode_answers([answer])
        counted = client_cost(fed, assignment, answer.num_examples).bytes_up
        assert counted < len(message) < counted + 1000  # a header, and tensors that begin at multiples of 64
        (back,) = decode_answers(message)
        assert_same(back, answer)


def assert_same(back: CompressedReport, report: CompressedReport) -> None:
    flat = [
        {**one.delta, **{f"{k}.{n}": v for k, s in one.state.items() for n, v in s.items()}}
        for one in (back, report)
    ]
    assert flat[0].keys() == flat[1].keys()
    assert all(torch.equal(flat[0][name], value) for name, value in flat[1].items())
    assert replace(back, delta={}, state={}) == replace(report, delta={}, state={})


def test_estimator_and_server_see_what_was_received(tmp_path, monkeypatch):
    settings = config("control variates", "topk")
    fed = build(settings)
    fed = replace(
        fed, method=replace(fed.method, estimator=fed.method.estimator.model_copy(update={"warmup": 0}))
    )
    plan, state = plan_round(fed, ServerState.initial(fed))
    disk = Disk(tmp_path)
    todo = list(assignments(fed, state, plan, disk))
    objective = fed.method.objective
    runner = ClientRunner(
        fed.task.train, fed.task.partition, fed.space, objective, compression=fed.compression
    )
    answers = [runner(Broadcast.of(state), (one,))[0] for one in todo]
    reports = [
        decompress(a, fed.compression, fed.space, one.spec) for a, one in zip(answers, todo, strict=True)
    ]
    seen = []
    measure = type(fed.method.estimator).measure

    def listening(self, space, spool, mean, common):
        seen.extend(spool)
        return measure(self, space, iter(seen), mean, common)

    monkeypatch.setattr(type(fed.method.estimator), "measure", listening)
    compressed_state, outcome = finish_round(fed, state, iter(todo), answers, disk)
    assert [one.client_id for one in outcome.trained] == [report.client_id for report in seen]
    plain = replace(fed, compression=None)
    plain_state, _ = finish_round(plain, state, iter(todo), reports, disk)
    for report, expected in zip(seen, reports, strict=False):
        assert all(torch.equal(report.delta[n], v) for n, v in expected.delta.items())
        share = sum(int((v != 0).sum()) for v in report.delta.values()) / num_values(fed.space, report.spec)
        assert share == pytest.approx(0.2, abs=0.02)
    for ours, theirs in (
        (compressed_state.params, plain_state.params),
        (compressed_state.server["server_control"], plain_state.server["server_control"]),
    ):
        assert all(torch.equal(ours[n], v) for n, v in theirs.items())
    assert compressed_state.estimates.tolist() == plain_state.estimates.tolist()


def test_server_refuses_a_compressed_report_where_none_is_expected(tmp_path):
    fed = build(config("stacked", "bf16"))
    plan, state = plan_round(fed, ServerState.initial(fed))
    todo = list(assignments(fed, state, plan, Disk(tmp_path)))
    answer = CompressedReport(todo[0].client_id, 0, {}, 1, 1, {"loss": 1.0})
    with pytest.raises(SliceError, match=r"client \d sent a compressed report, but this run compresses none"):
        finish_round(replace(fed, compression=None), state, iter(todo), [answer], Disk(tmp_path))


@pytest.mark.parametrize("currency", ["params", "bytes", "macs"])
def test_control_spends_what_its_compressed_treatment_spent(tmp_path, currency):
    treatment = config("stacked", "int8", rounds=12)
    run(treatment, tmp_path / "treatment")
    control = {"matched_to": str(tmp_path / "treatment"), "currency": currency}
    result = run(RunConfig(**{**dict(treatment), "control": control}), tmp_path / "control").result
    spent = run(treatment, tmp_path / "treatment", resume=True).rounds
    assert result["control"]["met"]
    expected = {
        "params": spent["params"],
        "bytes": spent["bytes_up"] + spent["bytes_down"],
        "macs": spent["macs"],
    }[currency]
    assert result["control"]["budget"] == pytest.approx(expected.mean() / 4)
    with pytest.raises(ConfigError, match=r"compression\.kind int8 \(here None\)"):
        run(RunConfig(**{**dict(treatment), "compression": None, "control": control}), tmp_path / "other")


@pytest.mark.parametrize("kind", [entry.name for entry in COMPRESSIONS])
def test_cost_command_counts_as_the_kind_does(kind):
    compression = COMPRESSIONS[kind].value()
    shown = CliRunner().invoke(app, ["cost", "mlp", "--json", "--compression", kind])
    plain = CliRunner().invoke(app, ["cost", "mlp", "--json"])
    for row, other in zip(json.loads(shown.stdout), json.loads(plain.stdout), strict=True):
        assert row == {**other, "upload_bytes": compression.num_bytes(row["params"])}
        assert row["upload_bytes"] < other["upload_bytes"] == 4 * row["params"]


def test_cost_command_reads_options_and_names_a_wrong_one():
    options = ["cost", "mlp", "--json", "--widths", "1", "--compression"]
    (row,) = json.loads(CliRunner().invoke(app, [*options, "{kind: topk, share: 0.01}"]).stdout)
    assert row["upload_bytes"] == 173 * 4 + 173 * 2  # of 17,226 parameters
    failed = CliRunner().invoke(app, [*options, "{kind: topk, shar: 0.01}"])
    assert failed.exit_code == 2
    assert "Did you mean 'compression.share'?" in " ".join(failed.output.split())
