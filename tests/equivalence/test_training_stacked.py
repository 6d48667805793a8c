"""Clients that are trained as one stack report what each reports alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from widthwise.core.errors import DivergenceError
from widthwise.core.records import ClientReport, ClientTask, LocalConfig, SliceSpec
from widthwise.slicing import WidthSpace, trace
from widthwise.tasks import ArraySet, Dataset, Signature, TextSet, resolve_model
from widthwise.training import ModuleCache, train
from widthwise.training.plain import Plain
from widthwise.training.stacked import train_stack

CONFIG = LocalConfig(local_epochs=2, batch_size=4, lr=0.1, momentum=0.9, weight_decay=1e-3, clip_norm=0.5)


def features() -> tuple[Dataset, str, Signature]:
    rng = torch.Generator().manual_seed(0)
    signature = Signature("features", (6,), 5)
    values, targets = torch.randn(60, 6, generator=rng), torch.randint(0, 5, (60,), generator=rng)
    return ArraySet("x", signature, tuple("abcde"), values, targets, (0.0,) * 6, (1.0,) * 6), "mlp", signature


def characters() -> tuple[Dataset, str, Signature]:
    rng = torch.Generator().manual_seed(0)
    signature = Signature("text", (8,), 12)
    tokens = torch.randint(0, 12, (80,), generator=rng).to(torch.uint8)
    return TextSet("x", signature, tuple("abcdefghijkl"), tokens, torch.arange(60)), "gpt", signature


class Odd(nn.Module):
    """Has a parameter without axes, and a buffer that is cut with the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 5)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.offsets: Tensor
        self.register_buffer("offsets", torch.arange(8.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x) + self.offsets) * self.scale)


def test_stack_gives_each_client_its_part_of_buffers_and_takes_parameters_without_axes() -> None:
    dataset, _, _ = features()
    torch.manual_seed(0)
    model = Odd()
    space = trace(model, torch.zeros(2, 6))
    half = space.nested(0.5)
    specs = [replace(half, kept={group: range(i, i + 4) for group in half.kept}) for i in range(4)]
    params = {n: p.detach() for n, p in model.named_parameters()}
    tasks = [
        replace(task, buffers=space.take(dict(model.named_buffers()), task.spec))
        for task in stack(space, params, specs, CONFIG)
    ]
    indices = [torch.arange(12 * i, 12 * i + 12) for i in range(4)]
    cache = ModuleCache(space)
    stacked = train_stack(tasks, space=space, module_for=cache, dataset=dataset, indices=indices)
    assert isinstance(stacked, list)
    for task, own, report in zip(tasks, indices, stacked, strict=True):
        alone = train(task, space=space, module_for=cache, dataset=dataset, indices=own, objective=Plain())
        for name, value in alone.delta.items():
            torch.testing.assert_close(report.delta[name], value, rtol=1e-4, atol=1e-6)


def stack(
    space: WidthSpace, params: dict[str, Tensor], specs: Sequence[SliceSpec], config: LocalConfig
) -> list[ClientTask]:
    return [
        ClientTask(i, 3, spec, spec, spec.width, space.take(params, spec), {}, {}, config, seed=i)
        for i, spec in enumerate(specs)
    ]


def both(
    data: tuple[Dataset, str, Signature], config: LocalConfig, sizes: Sequence[int], *, windows: bool = False
) -> tuple[list[ClientReport], list[ClientReport]]:
    dataset, name, signature = data
    spec = resolve_model(name, signature)
    model = spec.build(0)
    space = trace(model, spec.example_inputs())
    half = space.nested(0.5)
    specs = [half] * len(sizes)
    if windows:
        specs = [
            replace(half, kept={group: range(i % 2, i % 2 + len(kept)) for group, kept in half.kept.items()})
            for i in range(len(sizes))
        ]
    tasks = stack(space, {n: p.detach() for n, p in model.named_parameters()}, specs, config)
    indices = [torch.arange(12 * i, 12 * i + n) for i, n in enumerate(sizes)]
    cache = ModuleCache(space)
    alone = [
        train(task, space=space, module_for=cache, dataset=dataset, indices=own, objective=Plain())
        for task, own in zip(tasks, indices, strict=True)
    ]
    return alone, train_stack(tasks, space=space, module_for=cache, dataset=dataset, indices=indices)


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("data", [features, characters])
def test_stack_reports_what_each_client_reports_alone(data: object, windows: bool) -> None:
    found = both(data(), CONFIG, [10, 12, 11, 12], windows=windows)  # type: ignore[operator]
    for one, other in zip(*found, strict=True):
        assert (one.client_id, one.round_index, one.spec) == (other.client_id, 3, other.spec)
        assert (one.num_examples, one.num_steps) == (other.num_examples, other.num_steps)
        assert one.metrics["loss"] == pytest.approx(other.metrics["loss"], rel=1e-5)
        assert one.delta.keys() == other.delta.keys()
        for name, value in one.delta.items():
            torch.testing.assert_close(other.delta[name], value, rtol=1e-4, atol=1e-6)
            assert other.delta[name].is_contiguous()
            assert not other.delta[name].requires_grad


def test_stack_fills_up_a_last_batch_that_took_in_a_single_sample() -> None:
    for one, other in zip(*both(features(), CONFIG, [9, 8, 8]), strict=True):  # 4 + 5, 4 + 4, 4 + 4
        for name, value in one.delta.items():
            torch.testing.assert_close(other.delta[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("changes", [{"clip_norm": None}, {"momentum": 0.0, "weight_decay": 0.0}])
def test_stack_trains_by_the_same_settings(changes: dict[str, object]) -> None:
    for one, other in zip(*both(features(), replace(CONFIG, **changes), [12, 12]), strict=True):  # type: ignore[arg-type]
        for name, value in one.delta.items():
            torch.testing.assert_close(other.delta[name], value, rtol=1e-4, atol=1e-6)


def test_stack_trains_in_bfloat16_as_clients_do_alone() -> None:
    for one, other in zip(*both(features(), replace(CONFIG, precision="bf16"), [12, 12]), strict=True):
        for name, value in one.delta.items():
            torch.testing.assert_close(other.delta[name], value, rtol=0.1, atol=3e-3)


def train_four(dataset: Dataset, name: str, signature: Signature) -> None:
    spec = resolve_model(name, signature)
    model = spec.build(0)
    space = trace(model, spec.example_inputs())
    params = {n: p.detach() for n, p in model.named_parameters()}
    tasks = stack(space, params, [space.full()] * 4, replace(CONFIG, clip_norm=None))
    indices = [torch.arange(12 * i, 12 * i + 12) for i in range(4)]
    train_stack(tasks, space=space, module_for=ModuleCache(space), dataset=dataset, indices=indices)


def test_stack_names_the_client_and_the_step_at_which_a_loss_is_not_finite() -> None:
    dataset, name, signature = features()
    assert isinstance(dataset, ArraySet)
    dataset.values[30] = torch.finfo(torch.float32).max  # a sample of client 2
    with pytest.raises(DivergenceError, match=r"the training loss is (nan|inf)") as caught:
        train_four(dataset, name, signature)
    assert (caught.value.client, caught.value.round_index) == (2, 3)
    assert str(caught.value.stage).startswith("train step ")
