"""Tasks and reports as records, and how many bytes they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from fake_grid import sent
from flwr.app import Array, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from widthwise.deploy.wire import (
    decode_task,
    encode_report,
    encode_task,
    size_of,
    to_array,
    to_tensor,
)
from widthwise.engine.costs import slice_cost
from widthwise.engine.disk import Disk
from widthwise.engine.round import Broadcast, assignments, dispatch, plan_round
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.slicing import mask_bytes
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig


def federation(method, model=None):
    return build(
        RunConfig(
            task={
                "dataset": "digits",
                "model": model or {"name": "cnn-small", "norm": "batch"},
                "clients": 3,
                "partition": {"kind": "iid"},
                "limit": 60,
                "test_limit": 40,
            },
            capacity={"list": [0.3, 0.5, 1.0]},
            method=method,
            training={"rounds": 1, "cohort": 3, "local_epochs": 1, "batch_size": 8, "momentum": 0.0},
            seed=5,
        )
    )


def tasks_of(fed, folder):
    plan, state = plan_round(fed, ServerState.initial(fed))
    broadcast = Broadcast.of(state)
    todo = list(assignments(fed, state, plan, Disk(folder)))
    return broadcast, [(a, dispatch(fed.space, broadcast, a)) for a in todo]


def message(content):
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    return Message(content, 7, "train", group_id="0", ttl=60.0)


METHODS = {
    "nested": {"name": "heterofl"},
    "indices": {"name": "federated-dropout"},
    "masks": {"name": "fiarse"},
    "states": {"name": "scaffold", "policy": "capacity"},
    "teacher": {"name": "hasfl", "objective": "distillation", "policy": "tier-draw"},
}


def assert_same(ours, theirs):
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype
        assert torch.equal(ours[name], value)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_task_survives_the_wire(tmp_path, method):
    fed = federation(method)
    _, todo = tasks_of(fed, tmp_path)
    for _, task in todo:
        arrived, _ = sent(message(encode_task(task, (0.3, 1.0))))
        found, tiers = decode_task(arrived.content, fed.space)
        assert tiers == (0.3, 1.0)
        for one, other in ((found.spec, task.spec), (found.context_spec, task.context_spec)):
            assert (one.key(), one.width) == (other.key(), other.width)
            assert (one.mask is None) == (other.mask is None)
            if one.mask:
                assert one.mask.thresholds == other.mask.thresholds
                assert_same(one.mask.kept, other.mask.kept)
        assert_same(found.params, task.params)
        assert_same(found.buffers, task.buffers)
        assert found.state.keys() == task.state.keys()
        for name in task.state:
            assert_same(found.state[name], task.state[name])
        plain = {"params": {}, "buffers": {}, "state": {}, "spec": None, "context_spec": None}
        assert replace(found, **plain) == replace(task, **plain)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_tensors_of_messages_are_those_of_the_cost_table(tmp_path, method):
    fed = federation(method)
    broadcast, todo = tasks_of(fed, tmp_path)
    runner = ClientRunner(fed.task.train, fed.task.partition, fed.space, fed.method.objective)
    for assignment, task in todo:
        spec, context = assignment.spec, assignment.context_spec
        table = slice_cost(fed.space, fed.method.objective, spec, context, samples=0)
        down = size_of(message(encode_task(task, (1.0,))))
        beside = sum(value.nbytes for value in task.buffers.values())
        beside += sum(
            4 * value.numel() for state in assignment.client_state.values() for value in state.values()
        )
        assert down.tensors == table.bytes_down + beside
        report = runner(broadcast, (assignment,))[0]
        up = size_of(message(encode_report(report, down)))
        assert up.tensors == table.bytes_up


def test_messages_of_a_large_slice_are_within_five_percent_of_the_cost_table(tmp_path):
    fed = federation({"name": "heterofl"}, {"name": "mlp", "hidden": [200, 200]})
    _, todo = tasks_of(fed, tmp_path)
    for assignment, task in todo[:1]:
        table = slice_cost(
            fed.space, fed.method.objective, assignment.spec, assignment.context_spec, samples=0
        )
        assert table.bytes_down > 100_000
        down = size_of(message(encode_task(task, (1.0,))))
        assert table.bytes_down < down.wire < 1.05 * table.bytes_down


def test_masks_travel_as_one_bit_for_each_coordinate(tmp_path):
    fed = federation({"name": "fiarse"})
    _, todo = tasks_of(fed, tmp_path)
    task = todo[-1][1]
    assert task.spec.mask
    records = encode_task(task, (1.0,)).array_records
    assert sum(len(array.data) for array in records["mask"].values()) == mask_bytes(task.spec)


def test_size_of_is_what_travels_on_both_sides(tmp_path):
    fed = federation(
        {"name": "scaffold", "policy": "capacity"}
    )  # its states are zeros: one object, many times
    _, todo = tasks_of(fed, tmp_path)
    outgoing = message(encode_task(todo[0][1], (1.0,)))
    size = size_of(outgoing)
    arrived, travelled = sent(outgoing)
    assert size.wire == travelled
    assert size_of(arrived) == size
    assert size.tensors == sum(
        len(a.data) for r in arrived.content.array_records.values() for a in r.values()
    )


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_array_of_a_tensor_gives_it_back(shape, dtype):
    value = (torch.arange(6.0).reshape(2, 3) if shape == (2, 3) else torch.ones(shape)).to(dtype)
    array = to_array(value)
    assert len(array.data) == value.numel() * value.element_size()
    found = to_tensor(array)
    assert found.dtype == dtype
    assert torch.equal(found, value)


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (
            Array("float32", (2,), "numpy.ndarray", bytes(8)),
            "an array is 'numpy.ndarray' of 'float32', but raw",
        ),
        (Array("object", (2,), "raw", bytes(8)), "an array is 'raw' of 'object', but raw numbers"),
        (Array("float32", (3,), "raw", bytes(8)), r"an array of shape \(3,\) has 8 bytes"),
        (Array("float32", (-1, -2), "raw", bytes(8)), r"an array of shape \(-1, -2\) has 8 bytes"),
    ],
)
def test_to_tensor_refuses_what_is_not_raw_numbers(array, why):
    with pytest.raises(ValueError, match=why):
        to_tensor(array)


def test_size_of_an_error_is_its_text_alone():
    size = size_of(Message(Error(2, "x" * 500), reply_to=message(RecordDict())))
    assert size.tensors == 0
    assert 500 < size.wire < 1000
