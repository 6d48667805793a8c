"""Clients of width 0: in the round loop, in the run folder, and where a run is resumed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import yaml
from interruption import interrupt_round
from typer.testing import CliRunner

from widthwise.cli import app
from widthwise.engine import Federation, RunResult, run_federation
from widthwise.engine.disk import Disk
from widthwise.engine.round import sample_cohort
from widthwise.methods import build_method
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig

ROUNDS = 8
CONFIG: dict[str, Any] = {
    "task": {
        "dataset": "digits",
        "model": {"name": "mlp", "hidden": [8]},
        "clients": 6,
        "partition": {"kind": "iid"},
        "limit": 120,
        "test_limit": 50,
    },
    "capacity": {"list": [0.25, 0.5, 0.25, 1.0, 0.5, 0.25]},
    "method": {"name": "exclude-the-weak", "objective": "control-variates", "warmup": 0, "adapt_every": 1},
    "training": {"rounds": ROUNDS, "cohort": 2, "local_epochs": 1, "batch_size": 8, "momentum": 0.0},
    "engine": {"executor": "serial", "checkpoint_every": 3},
    "seed": 2,
}


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "checkpoint" / f"round-{ROUNDS:06d}.safetensors")


@pytest.fixture(scope="module")
def fed() -> Federation:
    return build(RunConfig(**CONFIG))


@pytest.fixture(scope="module")
def done(fed: Federation, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run_federation(fed, tmp_path_factory.mktemp("nobody") / "run")


def test_weak_clients_of_the_cohort_do_nothing(done: RunResult) -> None:
    rounds, clients = done.rounds, done.clients
    strong = clients[clients["client"] == 3]
    empty = ~strong["participated"].to_numpy()
    assert 2 <= empty.sum() <= ROUNDS - 2  # the one strong client is in some cohorts and not in others
    assert not clients[clients["client"] != 3]["participated"].any()
    assert set(clients[clients["client"] != 3]["width"]) == {0.0}
    for column in ("bytes_up", "bytes_down"):
        assert (clients[~clients["participated"]][column] == 0).all()
    assert list(rounds["mean_width"]) == [0.0 if e else 0.5 for e in empty]  # of a cohort of two
    assert list(rounds["coverage"]) == [0.0 if e else 1.0 for e in empty]
    for column in ("bytes_up", "bytes_down", "macs"):
        assert [bool(value) for value in rounds[column]] == list(~empty)
    assert list(rounds["train_loss"].isna()) == list(empty)
    accuracy = list(rounds["accuracy"])
    assert all(accuracy[t] == accuracy[t - 1] for t in range(1, ROUNDS) if empty[t])
    assert done.result["mean_width"] == pytest.approx(0.5 * (1 - empty.mean()))


def test_clients_that_never_train_do_not_count_as_holders_of_a_coordinate(done: RunResult) -> None:
    """One client ever trains, so N_j = 1 and the server's control is that client's own."""
    groups: dict[str, dict[str, torch.Tensor]] = {}
    for key, value in tensors(done.path).items():
        group, name = key.split("|")
        groups.setdefault(group, {})[name] = value
    ((client, round_index),) = groups["registered"]["states"].tolist()
    assert client == 3
    own = Disk(done.path).read(client, round_index)["client_control"]
    server = groups["server/server_control"]
    assert any(value.any() for value in own.values())
    torch.testing.assert_close(server, own)


def test_run_with_empty_rounds_gives_the_same_bits_when_resumed_in_worker_processes(
    fed: Federation, done: RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_round(monkeypatch, 5)
    with pytest.raises(KeyboardInterrupt):
        run_federation(fed, tmp_path / "run")
    engine = fed.engine.model_copy(update={"executor": "process", "workers": 1})
    again = run_federation(replace(fed, engine=engine), tmp_path / "run", resume=True)
    assert all(torch.equal(value, tensors(again.path)[name]) for name, value in tensors(done.path).items())
    assert again.rounds.drop(columns="seconds").equals(done.rounds.drop(columns="seconds"))


def test_run_says_so_when_capacities_do_not_allow_the_budget(fed: Federation, tmp_path: Path) -> None:
    method = build_method({"name": "random-budget", "targets": [1.0, 0.3]})
    short = fed.training.model_copy(update={"rounds": 2})
    budget = replace(fed, method=method, training=short, config={**fed.config, "method": method.to_config()})
    told = run_federation(budget, tmp_path / "run").result["control"]
    assert told["met"] is False
    assert told["matched_to"] is None
    assert (told["currency"], told["budget"]) == ("width", 0.65)
    # Cohorts of two: the first cannot reach 1, and the second gets all that it can hold to make up for it.
    spent = [fed.task.capacities[list(sample_cohort(fed, t).client_ids)].mean() for t in (0, 1)]
    assert told["spent"] == pytest.approx(sum(spent) / 2)
    errors = [abs(spent[0] - 1.0) / 0.65, abs(spent[1] - 0.3) / 0.65]
    assert told["largest_error"] == pytest.approx(max(errors))
    assert told["mean_error"] == pytest.approx(sum(errors) / 2)
    assert told["total_error"] == pytest.approx((sum(spent) - 1.3) / 1.3)


@pytest.mark.parametrize(
    ("method", "fraction", "note"),
    [
        # One hidden layer of 8: width 1/4 keeps 2 of 8 rows, biases and columns; 10 output biases stay.
        ("all-smallest", (64 * 6 + 6 + 6 * 10) / (64 * 8 + 8 + 80 + 10), None),
        ("exclude-the-weak", 0.0, "5 of 6 clients never take part: nothing is learned from their data."),
    ],
)
def test_coverage_says_what_a_control_never_trains(
    tmp_path: Path, method: str, fraction: float, note: str | None
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({**CONFIG, "method": {"name": method}}))
    shown = CliRunner().invoke(app, ["coverage", str(file), "--json"])
    assert json.loads(shown.stdout)["never_trained_fraction"] == pytest.approx(fraction)
    assert ("never take part" in shown.stderr) == (note is not None)
    assert (note or "") in shown.stderr
