"""A run that is killed, interrupted or moved to another executor ends in the same bits."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import safetensors.torch
import torch
import yaml
from filelock import FileLock
from interruption import interrupt_round

from widthwise.core.errors import CheckpointError, DivergenceError, InputError, RunError
from widthwise.engine import loop
from widthwise.studies.build import run
from widthwise.studies.config import RunConfig

ROUNDS = 14
# Everything a checkpoint must hold: control variates of clients and server, a policy that adapts, smoothed
# estimates, and a checkpoint interval that does not divide the number of rounds.
CONFIG = {
    "task": {
        "dataset": "digits",
        "model": {"name": "mlp", "hidden": [16, 8]},
        "clients": 8,
        "partition": {"kind": "dirichlet", "alpha": 0.5},
        "limit": 240,
    },
    "capacity": {"list": [0.25, 0.5, 0.75, 1.0, 0.5, 0.25, 1.0, 0.25]},
    "method": {
        "name": "hasfl",
        "objective": "control-variates",
        "warmup": 2,
        "adapt_every": 1,
        "normalise_every": 4,
    },
    "training": {
        "rounds": ROUNDS,
        "cohort": 4,
        "local_epochs": 1,
        "batch_size": 16,
        "lr": 0.05,
        "momentum": 0.0,
    },
    "engine": {"executor": "serial", "checkpoint_every": 4, "eval_every": 3},
    "seed": 11,
}


def config(**engine) -> RunConfig:
    return RunConfig(**{**CONFIG, "engine": {**CONFIG["engine"], **engine}})


def content(folder: Path) -> dict:
    """Everything that must be equal: all but wall time."""
    result = json.loads((folder / "result.json").read_text())
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for record in (result, *rounds):
        assert record.pop("seconds") > 0
    return {
        "result": result,
        "rounds": rounds,
        "clients": pd.read_parquet(folder / "clients.parquet"),
        "state": safetensors.torch.load_file(folder / "checkpoint" / f"round-{ROUNDS:06d}.safetensors"),
        "controls": {p.name: safetensors.torch.load_file(p) for p in (folder / "clients").iterdir()},
    }


def assert_same(ours: dict, theirs: dict) -> None:
    assert ours["result"] == theirs["result"]
    assert ours["rounds"] == theirs["rounds"]
    pd.testing.assert_frame_equal(ours["clients"], theirs["clients"], check_exact=True)
    assert ours["controls"].keys() == theirs["controls"].keys()
    pairs = [(ours["state"], theirs["state"])]
    pairs += [(ours["controls"][name], controls) for name, controls in theirs["controls"].items()]
    for mine, other in pairs:
        assert mine.keys() == other.keys()
        for name, value in other.items():
            assert torch.equal(mine[name], value), name


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    run(config(), folder)
    found = content(folder)
    states = found["state"]["registered|states"].tolist()
    assert sorted(found["controls"]) == sorted(f"{i}-{t}.safetensors" for i, t in states)  # and no others
    assert all(any(v.any() for v in control.values()) for control in found["controls"].values())
    assert any(name.startswith("server/") for name in found["state"])
    assert len(found["clients"]) == ROUNDS * 8
    return found


@pytest.mark.parametrize("workers", [1, 2])
def test_run_gives_the_same_bits_in_worker_processes(undisturbed, tmp_path, workers):
    run(config(executor="process", workers=workers), tmp_path / "run")
    assert_same(content(tmp_path / "run"), undisturbed)


def test_run_gives_the_same_bits_when_killed_and_resumed(undisturbed, tmp_path):
    stored = config(executor="process", workers=2).to_dict()
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(stored))
    out = tmp_path / "run"
    command = [sys.executable, "-m", "widthwise.cli", "run", tmp_path / "config.yaml", "--out", out]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    rounds = out / "rounds.jsonl"
    deadline = time.monotonic() + 120
    while not (rounds.is_file() and rounds.read_text().count("\n") >= 6):
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "result.json").exists()
    # The last line may be cut off in the middle of a write.
    with rounds.open("a") as file:
        file.write('{"round": 9')
    run(config(executor="serial"), out, resume=True)
    assert_same(content(out), undisturbed)


def test_run_is_saved_up_to_the_last_round_when_interrupted(undisturbed, tmp_path, monkeypatch):
    calls = interrupt_round(monkeypatch, 6)
    with pytest.raises(KeyboardInterrupt):
        run(config(), tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint" / "round-000005.json").is_file()
    run(config(), tmp_path / "run", resume=True)
    assert len(calls) == 6 + ROUNDS - 5
    assert_same(content(tmp_path / "run"), undisturbed)


def test_run_stops_when_the_disk_is_full_and_goes_on_afterwards(undisturbed, tmp_path, monkeypatch):
    # Three files when the folder is made, four client states in each round and three files for each
    # checkpoint: the second checkpoint's client rows are still written, its tensors are not.
    calls, original = [], os.fsync

    def full(handle):
        calls.append(handle)
        if len(calls) > 3 + 4 * 4 + 3 + 4 * 4 + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\), but .* Free some"):
        run(config(), tmp_path / "run")
    monkeypatch.undo()
    assert [p.name for p in (tmp_path / "run" / "checkpoint").glob("*.json")] == ["round-000004.json"]
    run(config(), tmp_path / "run", resume=True)
    assert_same(content(tmp_path / "run"), undisturbed)


class Killed(BaseException):
    """Nothing that a run handles: whatever comes after it did not happen."""


@pytest.mark.parametrize(
    ("what", "when"),
    [
        ("replace", 3 + 4 * 2 + 1),  # in the third round: one of its four client states is there
        ("replace", 3 + 4 * 4 + 1),  # its client rows are saved, the first checkpoint is not
        ("replace", 3 + 4 * 8 + 3 + 2),  # the tensors of the second checkpoint are there, its record is not
        ("unlink", 1),  # a new checkpoint is there, and all that only older ones name
        ("unlink", 6),  # in the midst of removing it
    ],
)
def test_run_gives_the_same_bits_when_it_dies_around_its_client_states(
    undisturbed, tmp_path, monkeypatch, what, when
):
    calls, original = [], getattr(Path, what)

    def dying(path, *args, **kwargs):
        calls.append(path)
        if len(calls) > when:
            raise Killed
        return original(path, *args, **kwargs)

    monkeypatch.setattr(Path, what, dying)
    with pytest.raises(Killed):
        run(config(), tmp_path / "run")
    monkeypatch.undo()
    assert not (tmp_path / "run" / "result.json").exists()
    run(config(), tmp_path / "run", resume=True)
    assert_same(content(tmp_path / "run"), undisturbed)


def test_finished_run_is_read_not_repeated_when_resumed(undisturbed, tmp_path, monkeypatch):
    first = run(config(), tmp_path / "run")
    monkeypatch.setattr(loop, "_one_round", None)
    again = run(config(), tmp_path / "run", resume=True)
    assert again.result == first.result


def test_diverged_run_keeps_its_last_finite_state_and_says_where(tmp_path):
    broken = {**CONFIG, "training": {**CONFIG["training"], "lr": 1e30}}
    with pytest.raises(DivergenceError, match=r"client \d, round 0, stage train"):
        run(RunConfig(**broken), tmp_path / "run")
    assert "DivergenceError" in (tmp_path / "run" / "error.txt").read_text()
    assert (tmp_path / "run" / "checkpoint" / "round-000000.json").is_file()


def test_run_forgets_the_failure_of_a_former_try(undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "finish_round", lambda *args: (_ for _ in ()).throw(RunError("it broke")))
    with pytest.raises(RunError, match="it broke"):
        run(config(), tmp_path / "run")
    assert "RunError: it broke" in (tmp_path / "run" / "error.txt").read_text()
    monkeypatch.undo()
    run(config(), tmp_path / "run", resume=True)
    assert not (tmp_path / "run" / "error.txt").exists()
    assert_same(content(tmp_path / "run"), undisturbed)


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unfinished") / "run"
    run(config(), folder)
    (folder / "result.json").unlink()
    return folder


@pytest.fixture
def copy(unfinished, tmp_path) -> Path:
    return Path(shutil.copytree(unfinished, tmp_path / "copy"))


def test_run_refuses_a_folder_that_holds_the_run_already(copy):
    with pytest.raises(CheckpointError, match=r"holds this run already\. Add --resume"):
        run(config(), copy)


def test_run_refuses_a_folder_of_another_configuration(copy):
    with pytest.raises(CheckpointError, match="holds a run of another configuration"):
        run(RunConfig(**{**CONFIG, "seed": 12}), copy, resume=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "started with other data or another partition"), ("{", r"partition\.json .* cannot be read")],
)
def test_run_refuses_to_go_on_with_other_data(copy, text, message):
    file = copy / "partition.json"
    file.write_text(text or file.read_text().replace('"hash": "', '"hash": "0'))
    with pytest.raises(CheckpointError, match=message):
        run(config(), copy, resume=True)


def test_run_refuses_a_folder_with_other_files(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(CheckpointError, match="holds files that are not a run"):
        run(config(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("how", ["truncate", "flip", "json", "missing"])
def test_run_refuses_a_damaged_checkpoint(copy, how):
    tensors = next((copy / "checkpoint").glob("*.safetensors"))
    data = tensors.read_bytes()
    if how == "truncate":
        tensors.write_bytes(data[:-100])
    elif how == "flip":
        tensors.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "json":
        tensors.with_suffix(".json").write_text("{")
    else:
        tensors.unlink()
    before = sorted(p.name for p in copy.rglob("*"))
    with pytest.raises(CheckpointError, match="but it is damaged"):
        run(config(), copy, resume=True)
    assert sorted(p.name for p in copy.rglob("*")) == before


def test_run_refuses_to_go_on_without_the_state_of_a_client(copy):
    state = sorted((copy / "clients").iterdir())[0]
    state.unlink()
    with pytest.raises(
        CheckpointError, match=rf"client state .*{state.name}' is missing, but the checkpoint"
    ):
        run(config(), copy, resume=True)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"policy": None}, "not iterable"),
        ({"round": "x"}, "invalid literal"),
        ({"round": -1}, "it says that it is of round -1"),
    ],
)
def test_run_refuses_a_checkpoint_with_other_content(copy, change, why):
    record = next((copy / "checkpoint").glob("*.json"))
    record.write_text(json.dumps(json.loads(record.read_text()) | change))
    with pytest.raises(CheckpointError, match=f"but it is damaged \\(.*{why}"):
        run(config(), copy, resume=True)


def test_run_refuses_to_go_on_without_the_rounds_before_the_checkpoint(copy):
    (copy / "rounds.jsonl").unlink()
    with pytest.raises(CheckpointError, match=r"rounds\.jsonl' has 0 rounds, but the checkpoint is at round"):
        run(config(), copy, resume=True)


def test_run_refuses_a_checkpoint_of_another_run(copy):
    record = next((copy / "checkpoint").glob("*.json"))
    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "config_hash": "0" * 16}))
    with pytest.raises(CheckpointError, match="written by another configuration or version"):
        run(config(), copy, resume=True)


@pytest.mark.parametrize("line", ["not JSON", "[1]", '{"round": 7}'])
def test_run_refuses_damaged_rounds(copy, line):
    path = copy / "rounds.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], line, *lines[2:]]) + "\n")
    with pytest.raises(CheckpointError, match=r"rounds.jsonl' is damaged"):
        run(config(), copy, resume=True)


def test_run_refuses_a_folder_that_another_process_writes(copy):
    with FileLock(copy / ".lock"), pytest.raises(CheckpointError, match="another process is writing there"):
        run(config(), copy, resume=True)
    run(config(), copy, resume=True)  # free again


def test_run_refuses_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="cannot be written"):
        run(config(), tmp_path / "file" / "run")


def test_run_starts_again_where_a_start_was_killed_before_its_configuration_was_written(tmp_path):
    for name in (".lock", "environment.json", "partition.json", ".config.yaml.x1y2"):
        (tmp_path / name).write_text("{")
    assert run(config(), tmp_path).complete
