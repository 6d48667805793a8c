"""Which devices a configuration means, and who of the workers takes which."""

from __future__ import annotations

import pickle
import re
import signal
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.heap import Arena
from pathlib import Path
from threading import Thread

import pytest
import torch
from typer.testing import CliRunner

from widthwise.cli import app
from widthwise.core.errors import ConfigError, RunError
from widthwise.engine import EngineConfig, run_federation
from widthwise.engine.devices import devices
from widthwise.engine.disk import Disk
from widthwise.engine.executors import process
from widthwise.engine.executors.ray import gpu_share
from widthwise.engine.round import Broadcast, assignments, plan_round
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig
from widthwise.studies.control import leaves

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)
TASK = {"dataset": "digits", "model": "mlp", "clients": 2, "partition": {"kind": "iid"}, "limit": 40}


def config(**engine: object) -> RunConfig:
    training = {"rounds": 1, "cohort": 2, "local_epochs": 1}
    return RunConfig(task=TASK, method={"name": "heterofl"}, training=training, engine=engine)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch):
    """Return a function that makes torch find so many CUDA devices."""

    def pretend(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr("os.cpu_count", lambda: 16)

    return pretend


def test_devices_are_all_of_a_kind_or_the_one_that_is_named(gpus) -> None:
    gpus(2)
    assert devices("cpu") == (CPU,)
    assert devices("cuda") == (FIRST, SECOND)
    assert devices("cuda:1") == (SECOND,)


@pytest.mark.parametrize(
    ("count", "asked", "found"),
    [(0, "cuda", "no CUDA device"), (0, "cuda:0", "no CUDA device"), (2, "cuda:2", "cuda:0, cuda:1")],
)
def test_devices_refuse_one_that_is_not_there(gpus, count: int, asked: str, found: str) -> None:
    gpus(count)
    message = f"device is {asked!r}, but torch {torch.__version__} finds {found} on this machine. Write"
    with pytest.raises(ConfigError, match=re.escape(message)):
        devices(asked)


def test_workers_elsewhere_take_the_first_device_that_they_are_given(gpus) -> None:
    gpus(0)
    assert devices("cuda", elsewhere=True) == (FIRST,)
    fed = build(config(executor="ray", address="auto", device="cuda"))
    assert (fed.devices, fed.own_device) == ((FIRST,), CPU)  # this process evaluates where it can


@pytest.mark.parametrize(("count", "device"), [(0, "cpu"), (1, "cuda")])
def test_auto_is_decided_when_the_configuration_is_read(gpus, count: int, device: str) -> None:
    gpus(count)
    assert EngineConfig(device="auto").device == device
    assert config(device="auto").hash() == config(device=device).hash()


@pytest.mark.parametrize(
    ("count", "device", "workers"), [(0, "cpu", 16), (1, "cuda", 4), (2, "cuda", 8), (2, "cuda:1", 4)]
)
def test_workers_are_few_for_each_gpu_by_default(gpus, count: int, device: str, workers: int) -> None:
    gpus(count)
    assert EngineConfig(device=device).workers == workers
    assert EngineConfig(device=device, workers=3).workers == 3


def test_stored_runs_of_a_gpu_are_read_where_there_is_none(gpus) -> None:
    gpus(0)
    assert EngineConfig(device="cuda:3").device == "cuda:3"


def test_ray_chooses_the_gpu_of_an_actor() -> None:
    with pytest.raises(ConfigError, match=r"device is 'cuda:1', but Ray chooses .* Write device: cuda"):
        config(executor="ray", device="cuda:1")


def test_hash_tells_devices_of_two_kinds_apart_and_not_two_of_one() -> None:
    cpu, one, other = (config(device=device).hash() for device in ("cpu", "cuda", "cuda:1"))
    assert one == other != cpu
    assert dict(leaves(config(device="cuda:1").to_dict()))["engine.device"] == "cuda:1"  # but it is stored


def test_warning_names_the_device_here_that_emulates_bf16(gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(2)
    monkeypatch.setattr("widthwise.engine.config.has_bfloat16", {CPU: False, FIRST: True, SECOND: False}.get)
    named = {"cpu": "but this CPU has no", "cuda": "but cuda:1 has no", "cuda:1": "but cuda:1 has no"}
    for device, text in named.items():
        assert text in str(EngineConfig(precision="bf16", device=device).warning)
        assert EngineConfig(precision="fp32", device=device).warning is None
    assert EngineConfig(precision="bf16", device="cuda:0").warning is None
    assert "this CPU" in str(EngineConfig(precision="bf16", executor="ray").warning)
    on_a_cluster = EngineConfig(precision="bf16", executor="ray", address="auto")
    assert on_a_cluster.warning is None  # of its nodes nothing is known


def test_warning_leaves_a_device_that_is_not_there_to_the_run(gpus) -> None:
    gpus(0)
    assert EngineConfig(precision="bf16", device="cuda").warning is None


def test_workers_take_devices_in_turn() -> None:
    fed = build(config())
    found = (FIRST, SECOND)
    runner = ClientRunner(fed.task.train, fed.task.partition, fed.space, fed.method.objective, 1, found)
    assert [runner.at(k).device for k in range(5)] == [FIRST, SECOND, FIRST, SECOND, FIRST]


def test_stacks_are_larger_on_a_gpu() -> None:
    fed = build(config())
    size = {}
    for device in (CPU, FIRST):
        runner = ClientRunner(
            fed.task.train, fed.task.partition, fed.space, fed.method.objective, 10_000, (device,)
        )
        plan, state = plan_round(fed, ServerState.initial(fed))
        assigned = next(assignments(fed, state, plan, Disk(Path("nowhere"))))
        full = fed.space.full()
        size[device.type] = runner._most(replace(assigned, spec=full, context_spec=full))
    # 17,226 parameters of 4 bytes: 60 models in 4 MiB, 3,895 in 256 MiB.
    assert size == {"cpu": 60, "cuda": 3895}


def test_worker_process_tells_a_new_round_from_further_stacks_of_the_same() -> None:
    ours, theirs = Pipe()
    seen: list[Broadcast] = []

    def runner(broadcast: Broadcast, stack: object, memory: object) -> None:
        seen.append(broadcast)
        raise RunError("there is nothing to train")

    def ask() -> None:
        for number in (1, 1, 2):
            ours.send_bytes(pickle.dumps((number, 0, ()), protocol=5))
            ours.recv_bytes()
        ours.close()

    broadcast = Broadcast({"w": torch.ones(2)}, {}, {})
    asking, handler = Thread(target=ask), signal.getsignal(signal.SIGINT)
    asking.start()
    try:
        process._work(theirs, runner, broadcast, Arena(process.BLOCKS * 64))
    finally:
        signal.signal(signal.SIGINT, handler)
        asking.join()
    assert seen[0] is seen[1] is not seen[2]
    assert seen[2].params is broadcast.params  # in shared memory, where the new values are


@pytest.mark.parametrize(
    ("workers", "gpus", "share"), [(1, 1, 1.0), (4, 1, 0.25), (3, 2, 0.5), (2, 4, 1.0), (9, 1, 0.1111)]
)
def test_gpu_share_gives_every_actor_a_place(workers: int, gpus: int, share: float) -> None:
    assert gpu_share(workers, gpus) == share
    places = sum(int(1 / gpu_share(workers, gpus) + 1e-9) for _ in range(gpus))
    assert places >= workers


def test_gpu_share_refuses_a_cluster_without_a_gpu() -> None:
    with pytest.raises(RunError, match=r"engine.device is 'cuda', but Ray knows of no GPU"):
        gpu_share(2, 0)


def test_run_writes_nothing_when_the_device_is_not_there(gpus, tmp_path: Path) -> None:
    gpus(0)
    with pytest.raises(ConfigError, match="no CUDA device"):
        run_federation(build(config(device="cuda")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_command_ends_with_code_2_when_the_device_is_not_there(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    file = tmp_path / "run.yaml"
    file.write_text("task: {dataset: digits, model: mlp, partition: {kind: iid}}\nmethod: {name: heterofl}\n")
    result = CliRunner().invoke(
        app, ["run", str(file), "--set", "engine.device=cuda", "--out", str(tmp_path / "x")]
    )
    assert result.exit_code == 2
    assert "finds no CUDA device on this machine" in " ".join(result.output.split())
    assert not (tmp_path / "x").exists()
