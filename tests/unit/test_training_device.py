"""Where a client's tensors lie and when the host waits, without an accelerator.

Torch's ``meta`` device stands for one: its tensors have shapes and no numbers, so whatever asks for a number
fails, and a dispatch mode refuses operations that mix its tensors with the host's. What it cannot show is
what kernels compute.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from widthwise.core.records import ClientReport, SummedReports
from widthwise.engine.disk import Disk
from widthwise.engine.federation import Federation
from widthwise.engine.round import Assignment, Broadcast, assignments, plan_round
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.methods import build_method
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig
from widthwise.training import loop, stacked

META = torch.device("meta")
METHODS: dict[str, dict[str, Any]] = {
    "plain": {"name": "heterofl"},
    "proximal": {"name": "fedprox", "policy": "capacity"},
    "control-variates": {"name": "scaffold", "policy": "capacity"},
    "distillation": {"name": "fjord"},
    "distillation-step": {"name": "fjord", "policy": "capacity", "draw": "step"},
    "masks": {"name": "fiarse"},
    "windows": {"name": "fedrolex"},
    "random channels": {"name": "federated-dropout"},
}
MODELS = {"conv": ("cnn-small", None), "batch norm": ("cnn-small", "batch")}


class OneDevice(TorchDispatchMode):
    """Refuses operations on tensors of two devices; numbers of the host may go anywhere."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        found = {x.device.type for x in tensors if x.dim()}
        assert len(found) <= 1, f"{func} is called on {found}"
        return func(*args, **(kwargs or {}))


class HostReads(TorchDispatchMode):
    """Counts operations that make the host wait for a value of a device."""

    WAITING = frozenset(
        {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2"}
    )

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func._schema.name.removeprefix("aten::") in self.WAITING
        return func(*args, **(kwargs or {}))


@pytest.fixture
def transfers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let ``meta`` pass for an accelerator, and return where tensors were sent."""
    sent: list[str] = []

    def carried(tensors: list[Tensor], device: torch.device) -> list[Tensor]:
        sent.append(device.type)
        with torch.utils._python_dispatch._disable_current_modes():
            return [torch.zeros(value.shape, dtype=value.dtype, device=device) for value in tensors]

    monkeypatch.setattr("widthwise.core.device.carried", carried)
    sgd = torch.optim.SGD  # its fused kernel and autocast know no such device
    monkeypatch.setattr(
        torch.optim, "SGD", lambda *own, fused, **options: sgd(*own, foreach=fused, **options)
    )
    for module in (loop, stacked):
        monkeypatch.setattr(module, "autocast", lambda precision, device: nullcontext())
    return sent


@cache
def built(model: str, norm: str | None) -> Federation:
    return build(
        RunConfig(
            task={
                "dataset": "digits",
                "model": model,
                "norm": norm,
                "clients": 4,
                "partition": {"kind": "iid"},
                "limit": 60,
            },
            capacity={"list": [0.5, 0.5, 1.0, 1.0]},
            method={"name": "heterofl"},
            training={"rounds": 2, "cohort": 4, "batch_size": 8, "momentum": 0.0},
            engine={"executor": "serial"},
        )
    )


def federation(method: dict[str, Any], model: str, norm: str | None = None, *, epochs: int = 2) -> Federation:
    fed, parts = built(model, norm), build_method(method)
    # Shifted and mirrored where convolutions are (the configuration refuses mirrored digits).
    data = replace(fed.task.train, augment=model != "mlp")
    return replace(
        fed,
        task=replace(fed.task, train=data),
        method=replace(parts, objective=parts.objective.for_tiers((0.5, 1.0))),
        training=fed.training.model_copy(update={"local_epochs": epochs}),
    )


def first_round(fed: Federation, device: torch.device) -> tuple[ClientRunner, Broadcast, list[Assignment]]:
    runner = ClientRunner(
        fed.task.train, fed.task.partition, fed.space, fed.method.objective, fed.engine.stack, (device,)
    )
    plan, state = plan_round(fed, ServerState.initial(fed))
    return runner, Broadcast.of(state), list(assignments(fed, state, plan, Disk(Path("nowhere"))))


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_client_trains_on_its_device_and_comes_home_once(
    transfers: list[str], method: dict[str, Any], model: tuple[str, str | None]
) -> None:
    runner, broadcast, given = first_round(federation(method, *model), META)
    with OneDevice():
        for assignment in given:
            before = transfers.count("cpu")
            (report,) = runner(broadcast, (assignment,))
            assert isinstance(report, ClientReport)
            assert transfers.count("cpu") == before + 1
            assert report.spec is assignment.spec
            tensors = [report.delta, *report.state.values()]
            assert {value.device.type for values in tensors for value in values.values()} == {"cpu"}
            shapes = runner.space.shapes(report.spec)
            assert {name: tuple(value.shape) for name, value in report.delta.items()} == shapes


@pytest.mark.parametrize("weight", [None, 1.0])
def test_stack_trains_on_its_device_and_comes_home_once(transfers: list[str], weight: float | None) -> None:
    runner, broadcast, given = first_round(federation(METHODS["plain"], "mlp"), META)
    found = list(runner.stacks(replace(assignment, weight=weight) for assignment in given))
    assert [len(stack) for stack in found] == [2, 2]
    with OneDevice():
        for stack in found:
            before = transfers.count("cpu")
            answers = runner(broadcast, stack)
            assert transfers.count("cpu") == before + 1
            assert len(answers) == (2 if weight is None else 1)
            for answer in answers:
                values = answer.total if isinstance(answer, SummedReports) else answer.delta
                assert {value.device.type for value in values.values()} == {"cpu"}


def test_global_tensors_go_up_once_for_each_object(transfers: list[str]) -> None:
    runner, broadcast, given = first_round(federation(METHODS["plain"], "mlp"), META)
    alone = [(assignment,) for assignment in given[:2]]
    runner(broadcast, alone[0])
    before = transfers.count("meta")
    runner(broadcast, alone[1])
    each = transfers.count("meta") - before
    runner(replace(broadcast), alone[1])
    assert transfers.count("meta") - before == 2 * each + 1


def host_reads(go: Callable[[], object]) -> int:
    with HostReads() as mode:
        go()
    return mode.count


WAYS = [
    *(pytest.param(method, "cnn-small", id=f"{name}, alone") for name, method in METHODS.items()),
    pytest.param(METHODS["plain"], "mlp", id="plain, stacked"),
]


@pytest.mark.parametrize(("method", "model"), WAYS)
def test_no_number_is_read_in_a_step(method: dict[str, Any], model: str) -> None:
    """However many steps a client makes, it reads as often: at the end."""
    counts = []
    for epochs in (1, 3):
        runner, broadcast, given = first_round(federation(method, model, epochs=epochs), torch.device("cpu"))
        stack = next(runner.stacks(replace(one, weight=None) for one in given))
        counts.append(host_reads(lambda run=runner, sent=broadcast, own=stack: run(sent, own)))
    assert counts[0] == counts[1] > 0  # the check that the update is finite reads
