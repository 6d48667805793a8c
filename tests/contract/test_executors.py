"""What every executor promises: the reports of ``serial``, to the bit, and failures that say where."""

from __future__ import annotations

import logging
import os
import signal
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import get_args

import pytest
import torch

from widthwise.compression import Int8
from widthwise.core.errors import ConfigError, DivergenceError, RunError
from widthwise.core.records import CompressedReport, SliceSpec, SummedReports
from widthwise.engine import EngineConfig, run_federation
from widthwise.engine.codec import (
    decode_answers,
    decode_report,
    encode_answers,
    encode_report,
    pack,
    unpack,
)
from widthwise.engine.disk import Disk
from widthwise.engine.executors import EXECUTORS, process
from widthwise.engine.executors import ray as ray_executor
from widthwise.engine.executors.handout import WINDOW
from widthwise.engine.round import Broadcast, assignments, plan_round
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.methods import build_method
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig
from widthwise.tasks import ListedPartition
from widthwise.training import OBJECTIVES

NOWHERE = Disk(Path("nowhere"))  # these clients keep no state
NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install '.[ray]'")
ALL = [pytest.param(e, id=e.name, marks=[NEEDS_RAY] if e.name == "ray" else []) for e in EXECUTORS]
#: Any number of workers; an actor of Ray takes seconds to start.
CREWS = [
    pytest.param(*param.values, n, id=f"{param.id}-{n}", marks=param.marks)
    for param in ALL
    for n in {"serial": (), "ray": (2,)}.get(param.id, (1, 2, 3))
]


@pytest.fixture(scope="module", autouse=True)
def local_ray():
    """One Ray for all tests here: an executor joins what its process is connected to."""
    if find_spec("ray") is None:
        yield
        return
    import ray

    folder = TemporaryDirectory(prefix="ray-", dir="/tmp")
    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    with pytest.MonkeyPatch.context() as patch, folder as temp:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        ray.init(address="local", num_cpus=3, _temp_dir=temp, **options)
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def fed():
    return build(
        RunConfig(
            task={
                "dataset": "digits",
                "model": "cnn-small",
                "clients": 6,
                "partition": {"kind": "dirichlet", "alpha": 0.5},
                "limit": 240,
            },
            capacity={"list": [0.25, 0.5, 0.75, 1.0, 0.5, 0.25]},
            method={"name": "heterofl"},
            training={"rounds": 2, "cohort": 4, "local_epochs": 1, "batch_size": 16, "lr": 0.05},
            seed=3,
        )
    )


@pytest.fixture(scope="module")
def brief(fed):
    """The same with a single step for each client."""
    return replace(fed, training=fed.training.model_copy(update={"batch_size": 128}))


@pytest.fixture(scope="module")
def stacked():
    """A federation most of whose clients are trained together."""
    return build(
        RunConfig(
            task={
                "dataset": "digits",
                "model": {"name": "mlp", "hidden": [16]},
                "clients": 12,
                "partition": {"kind": "iid"},
                "limit": 300,
            },
            capacity={"list": [0.5] * 5 + [1.0] * 7},
            method={"name": "heterofl"},
            training={"rounds": 2, "cohort": 12, "local_epochs": 2, "batch_size": 16, "lr": 0.05},
            engine={"stack": 4},
            seed=3,
        )
    )


def runner_of(fed):
    objective, stack = fed.method.objective, fed.engine.stack
    return ClientRunner(
        fed.task.train, fed.task.partition, fed.space, objective, stack, compression=fed.compression
    )


def controlled(fed):
    """Return the federation with reports of two dictionaries: the update, and that of a control variate."""
    options = {"name": "heterofl", "objective": "control-variates", "force_momentum": True}
    return replace(fed, method=build_method(options))


def reports_of(fed, executor, *, summed=False):
    """Return the answers by client, or by clients where they are summed."""
    plan, state = plan_round(fed, ServerState.initial(fed))
    assert sorted(plan.widths) == list(plan.cohort.client_ids)
    todo = assignments(fed, state, plan, NOWHERE)
    if not summed:
        todo = (replace(assignment, weight=None) for assignment in todo)
    found = {}
    for answer in executor.run(Broadcast.of(state), todo):
        several = isinstance(answer, SummedReports)
        found[answer.client_ids if several else answer.client_id] = answer
    clients = [i for key in found for i in (key if isinstance(key, tuple) else (key,))]
    assert clients == list(plan.widths)  # in their order, whoever is ready first
    return found


def assert_equal(a, b):
    if isinstance(a, SummedReports):
        assert a.spec.key() == b.spec.key()
        assert list(a.total) == list(b.total)
        assert all(torch.equal(a.total[name], b.total[name]) for name in a.total)
        assert (a.weight, a.client_ids) == (b.weight, b.client_ids)
        assert (a.num_examples, a.losses) == (b.num_examples, b.losses)
        return
    assert (a.client_id, a.round_index, a.num_examples, a.num_steps) == (
        b.client_id,
        b.round_index,
        b.num_examples,
        b.num_steps,
    )
    assert type(a) is type(b)
    assert isinstance(a, CompressedReport) or a.spec.key() == b.spec.key()
    assert a.metrics == b.metrics
    assert a.state.keys() == b.state.keys()
    for ours, theirs in ((a.delta, b.delta), *((a.state[k], b.state[k]) for k in a.state)):
        assert list(ours) == list(theirs)  # also in order: sums over parameters depend on it
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(("entry", "workers"), CREWS)
def test_executor_gives_the_reports_of_serial_to_the_bit(fed, entry, workers):
    with EXECUTORS["serial"].value(runner_of(fed), 1) as serial:
        expected = reports_of(fed, serial)
    with entry.value(runner_of(fed), workers) as executor:
        for _ in range(2):  # a second round on the same workers must not remember the first
            for client, report in reports_of(fed, executor).items():
                assert_equal(report, expected[client])


@pytest.mark.parametrize(("entry", "workers"), CREWS)
@pytest.mark.parametrize(("kind", "summed"), [("stacked", False), ("stacked", True), ("brief", True)])
def test_executor_gives_the_reports_of_stacks_to_the_bit(request, entry, workers, kind, summed):
    case = request.getfixturevalue(kind)
    with EXECUTORS["serial"].value(runner_of(case), 1) as serial:
        expected = reports_of(case, serial, summed=summed)
    assert any(isinstance(answer, SummedReports) for answer in expected.values()) is summed
    with entry.value(runner_of(case), workers) as executor:
        found = reports_of(case, executor, summed=summed)
        assert found.keys() == expected.keys()
        for clients, answer in found.items():
            assert_equal(answer, expected[clients])


@pytest.mark.parametrize(("entry", "workers"), CREWS)
def test_executor_gives_the_compressed_reports_of_serial_to_the_bit(fed, stacked, entry, workers):
    for case in (controlled(fed), stacked):
        packed = replace(case, compression=Int8())
        with EXECUTORS["serial"].value(runner_of(packed), 1) as serial:
            expected = reports_of(packed, serial)
        with entry.value(runner_of(packed), workers) as executor:
            for client, report in reports_of(packed, executor).items():
                assert isinstance(report, CompressedReport)
                assert_equal(report, expected[client])


def test_stacks_hold_neighbours_of_one_shape_and_report_what_clients_report_alone(stacked):
    plan, state = plan_round(stacked, ServerState.initial(stacked))
    todo = list(assignments(stacked, state, plan, NOWHERE))
    runner, broadcast = runner_of(stacked), Broadcast.of(state)
    stacks = list(runner.stacks(todo))
    assert [a for stack in stacks for a in stack] == todo
    assert [len(stack) for stack in stacks] == [4, 3, 4, 1]
    assert all(len({a.spec.width for a in stack}) == 1 for stack in stacks)
    alone = runner_of(stacked)
    alone.stack = 1
    assert [len(stack) for stack in alone.stacks(todo)] == [1] * 12
    for stack in stacks:
        others = [alone(broadcast, (assignment,))[0] for assignment in stack]
        kept = tuple(replace(assignment, weight=None) for assignment in stack)
        for assignment, report, other in zip(stack, runner(broadcast, kept), others, strict=True):
            assert report.client_id == assignment.client_id
            assert report.num_steps == other.num_steps
            for name, value in other.delta.items():
                torch.testing.assert_close(report.delta[name], value, rtol=1e-4, atol=1e-6)
        if len(stack) > 1:
            (summed,) = runner(broadcast, stack)
            assert summed.weight == sum(report.num_examples for report in others)
            for name, value in summed.total.items():
                expected = sum(report.num_examples * report.delta[name].double() for report in others)
                torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-4)


def test_clients_that_cannot_be_trained_at_once_are_summed_where_handing_over_costs_most(brief):
    plan, state = plan_round(brief, ServerState.initial(brief))
    todo = list(assignments(brief, state, plan, NOWHERE))
    runner, broadcast = runner_of(brief), Broadcast.of(state)
    stacks = list(runner.stacks(todo))
    assert [len(stack) for stack in stacks] == [1, 1, 2]  # three widths
    several = stacks[-1]
    (summed,) = runner(broadcast, several)
    reports = [report for one in several for report in runner(broadcast, (one,))]
    assert (summed.weight, summed.client_ids) == (
        sum(report.num_examples for report in reports),
        tuple(one.client_id for one in several),
    )
    assert summed.losses == tuple(report.metrics["loss"] for report in reports)
    for name, value in summed.total.items():
        expected = sum(report.num_examples * report.delta[name].double() for report in reports)
        torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-6)


def test_clients_that_cannot_be_trained_at_once_go_alone_where_an_update_or_much_training_is_asked_for(brief):
    plan, state = plan_round(brief, ServerState.initial(brief))
    todo = list(assignments(brief, state, plan, NOWHERE))
    kept = [replace(one, weight=None) for one in todo]
    much = [replace(one, config=replace(one.config, local_epochs=10_000)) for one in todo]
    steps = [replace(one, config=replace(one.config, batch_size=2)) for one in todo]
    other = [replace(one, context_spec=brief.space.nested(1 - i / 10)) for i, one in enumerate(todo)]
    for given in (kept, much, steps, other):
        assert [len(stack) for stack in runner_of(brief).stacks(given)] == [1] * 4
    unstacked = runner_of(brief)
    unstacked.stack = 1
    assert [len(stack) for stack in unstacked.stacks(todo)] == [1] * 4


def test_the_client_that_fails_is_named_whoever_it_goes_with(brief):
    plan, state = plan_round(brief, ServerState.initial(brief))
    todo = list(assignments(brief, state, plan, NOWHERE))
    several = list(runner_of(brief).stacks(todo))[-1]
    runner = runner_of(brief)
    lost = several[-1].client_id
    runner.partition = replace(
        brief.task.partition,
        offsets=brief.task.partition.offsets.clone().index_add(
            0, torch.tensor([lost, lost + 1]), torch.tensor([10**9, 10**9])
        ),
    )
    with pytest.raises(RunError) as caught:
        runner(Broadcast.of(state), several)
    assert caught.value.client == lost


@pytest.mark.parametrize("entry", ALL)
def test_executor_names_client_round_and_stage_when_training_diverges(fed, entry):
    fed = replace(fed, training=fed.training.model_copy(update={"lr": 1e30}))
    with entry.value(runner_of(fed), 1) as executor, pytest.raises(DivergenceError) as caught:
        reports_of(fed, executor)
    assert caught.value.round_index == 0
    assert caught.value.client is not None
    assert "train" in str(caught.value)


@pytest.mark.parametrize("entry", ALL)
def test_executor_names_the_client_when_a_slice_does_not_fit(fed, entry):
    plan, state = plan_round(fed, ServerState.initial(fed))
    alien = replace(next(assignments(fed, state, plan, NOWHERE)), spec=SliceSpec(0.5, {"nowhere": range(1)}))
    message = rf"client {alien.client_id}, round 0, stage training: SliceError: the spec's groups are nowhere"
    with entry.value(runner_of(fed), 1) as executor, pytest.raises(RunError, match=message):
        list(executor.run(Broadcast.of(state), [alien]))


@pytest.mark.parametrize("entry", ALL)
def test_executor_takes_few_assignments_ahead_of_the_reports_that_it_gives(fed, entry):
    plan, state = plan_round(fed, ServerState.initial(fed))
    few = [replace(one, weight=None) for one in assignments(fed, state, plan, NOWHERE)]
    slow = replace(few[0], config=replace(few[0].config, local_epochs=30))
    taken = []

    def coming():
        for assignment in (slow, *few * 8):
            taken.append(assignment)
            yield assignment

    with entry.value(runner_of(fed), 2) as executor:
        for given, report in enumerate(executor.run(Broadcast.of(state), coming())):
            assert report.client_id == taken[given].client_id
            assert len(taken) - given <= WINDOW * 2
    assert len(taken) == given + 1 == 33


def test_configuration_knows_every_executor():
    assert set(get_args(EngineConfig.model_fields["executor"].annotation)) == set(EXECUTORS.names())


def test_process_executor_names_the_client_when_a_worker_is_killed(fed):
    with EXECUTORS["process"].value(runner_of(fed), 1) as executor:
        reports_of(fed, executor)
        (worker,) = executor._workers.values()
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.join()
        message = r"client \d, round 0, stage training: a worker process died \(exit code -9\)"
        with pytest.raises(RunError, match=message):
            reports_of(fed, executor)


def test_process_executor_keeps_the_traceback_when_a_client_fails(fed):
    held = fed.task.partition
    held = ListedPartition(held.offsets, held.indices.clone())
    fed = replace(fed, task=replace(fed.task, partition=held))
    victim = plan_round(fed, ServerState.initial(fed))[0].cohort.client_ids[1]
    fed.task.partition.client(victim)[0] = 10**9
    message = rf"client {victim}, round 0, stage training: IndexError: index 1000000000 is out of bounds"
    with (
        EXECUTORS["process"].value(runner_of(fed), 1) as executor,
        pytest.raises(RunError, match=message) as caught,
    ):
        reports_of(fed, executor)
    assert "Traceback in the worker process" in caught.value.__notes__[0]
    assert "in batch" in caught.value.__notes__[0]


@NEEDS_RAY
def test_ray_executor_gives_the_same_bits_when_an_actor_is_killed_in_mid_round(brief):
    import ray

    plan, state = plan_round(brief, ServerState.initial(brief))
    todo = list(assignments(brief, state, plan, NOWHERE)) * 6
    with EXECUTORS["serial"].value(runner_of(brief), 1) as serial:
        expected = list(serial.run(Broadcast.of(state), todo))
    with EXECUTORS["ray"].value(runner_of(brief), 2) as executor:
        reports_of(brief, executor)
        victim = executor._idle[0]
        pid = ray.get(victim.__ray_call__.remote(lambda self: os.getpid()))
        found = []
        for report in executor.run(Broadcast.of(state), todo):
            found.append(report)
            if len(found) == 1:
                os.kill(pid, signal.SIGKILL)
        assert list(executor._losses.values()) == [1]
        assert victim not in executor._idle
    assert any(isinstance(answer, SummedReports) for answer in found)
    for report, other in zip(found, expected, strict=True):
        assert_equal(report, other)


class Deadly(OBJECTIVES["plain"].value):
    """An objective of the user's script, which takes its process with it."""

    __module__ = "__main__"

    def local(self, setting):
        os.kill(os.getpid(), signal.SIGKILL)


@NEEDS_RAY
def test_ray_executor_names_the_client_that_is_lost_again_and_again(fed, monkeypatch):
    monkeypatch.setattr(ray_executor, "LOSSES", 0)
    fed = replace(fed, method=replace(fed.method, objective=Deadly()))
    message = r"client \d, round 0, stage training: workers were lost 1 times in a round .* Free memory"
    with EXECUTORS["ray"].value(runner_of(fed), 1) as executor, pytest.raises(RunError, match=message):
        reports_of(fed, executor)


@NEEDS_RAY
def test_ray_executor_says_what_a_worker_cannot_load(fed, monkeypatch):
    here = ModuleType("only_here")
    here.Mine = type("Mine", (OBJECTIVES["plain"].value,), {"__module__": "only_here"})
    monkeypatch.setitem(sys.modules, "only_here", here)
    fed = replace(fed, method=replace(fed.method, objective=here.Mine()))
    message = r"stage start: a worker cannot load .*: No module named 'only_here'\), but .* on every node"
    with EXECUTORS["ray"].value(runner_of(fed), 1) as executor, pytest.raises(RunError, match=message):
        reports_of(fed, executor)


@NEEDS_RAY
def test_ray_executor_gives_up_when_no_worker_can_start(fed, monkeypatch):
    monkeypatch.setattr(ray_executor, "START_SECONDS", 0.01)
    message = r"stage start: no worker has started in 0.01 s, but each needs a free core"
    with EXECUTORS["ray"].value(runner_of(fed), 1) as executor, pytest.raises(RunError, match=message):
        reports_of(fed, executor)


def test_run_is_refused_before_anything_is_written_when_ray_is_not_installed(fed, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    fed = replace(fed, engine=EngineConfig(executor="ray"))
    with pytest.raises(ConfigError, match=r"package 'ray' is not installed\. Run: pip install"):
        run_federation(fed, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_codec_round_trip_returns_an_equal_report(fed):
    fed = controlled(fed)
    with EXECUTORS["serial"].value(runner_of(fed), 1) as serial:
        for report in reports_of(fed, serial).values():
            assert report.state
            assert_equal(decode_report(encode_report(report)), report)


@pytest.mark.parametrize("summed", [False, True])
def test_codec_writes_into_memory_that_is_large_enough(stacked, summed):
    with EXECUTORS["serial"].value(runner_of(stacked), 1) as serial:
        reports = list(reports_of(stacked, serial, summed=summed).values())[: 1 if summed else 5]
    message = encode_answers(reports)
    for size, inside in ((len(message), True), (len(message) + 100, True), (len(message) - 1, False)):
        memory = bytearray(b"x" * size)
        written = encode_answers(reports, into=memoryview(memory))
        assert isinstance(written, memoryview) is inside
        assert memory.startswith(bytes(written)) is inside
        for report, expected in zip(decode_answers(written), reports, strict=True):
            assert_equal(report, expected)


def test_codec_moves_what_lies_elsewhere_in_the_memory():
    memory = bytearray(4096)
    one, other = (torch.frombuffer(memory, dtype=torch.float32)[at : at + 16] for at in (0, 16))
    one.fill_(1.0)
    other.fill_(2.0)
    message = pack({}, {"": {"first": other, "second": one}}, memoryview(memory))
    _, groups = unpack(message)
    assert {name: value.unique().item() for name, value in groups[""].items()} == {
        "first": 2.0,
        "second": 1.0,
    }


def test_process_executor_sends_what_does_not_fit_into_its_memory(stacked, monkeypatch):
    with EXECUTORS["serial"].value(runner_of(stacked), 1) as serial:
        expected = reports_of(stacked, serial)
    monkeypatch.setattr(process, "STACK_BYTES", 0)
    monkeypatch.setattr(process, "SPARE_BYTES", 0)
    with EXECUTORS["process"].value(runner_of(stacked), 2) as executor:
        for client, report in reports_of(stacked, executor).items():
            assert_equal(report, expected[client])
