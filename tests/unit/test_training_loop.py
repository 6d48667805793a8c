from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from widthwise.core.errors import DivergenceError
from widthwise.core.records import ClientReport
from widthwise.core.seeds import SeedTree
from widthwise.training import OBJECTIVES, ModuleCache, TrainingConfig, epoch_batches, train
from widthwise.training.modules import MAX_MODULES

PLAIN = OBJECTIVES["plain"].value()


def run(toy, task, objective=PLAIN, indices=None, **other) -> ClientReport:
    return train(
        task,
        space=toy.space,
        module_for=other.pop("module_for", None) or ModuleCache(toy.space),
        dataset=other.pop("dataset", toy.data),
        indices=torch.arange(10) if indices is None else indices,
        objective=objective,
        **other,
    )


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_train_equals_sgd_written_by_hand(make_toy) -> None:
    # Two epochs of batches 4 + 4 + 2 on the slice of width .5, momentum, decay and clipping by hand.
    toy = make_toy("mlp")
    task = toy.task(0.5, local_epochs=2, momentum=0.9, weight_decay=0.01, clip_norm=0.5, lr=0.2)
    report = run(toy, task)

    module = toy.space.module(task.spec)
    module.load_state_dict(task.params)
    buffer = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    losses = []
    for epoch in range(2):
        order = torch.randperm(10, generator=SeedTree(task.seed).at("shuffle", epoch).torch())
        for batch in order.split(4):
            module.zero_grad()
            loss = cross_entropy(module(toy.data.inputs[batch]), toy.data.targets[batch])
            loss.backward()
            losses += [loss.item()] * len(batch)
            norm = torch.cat([p.grad.flatten() for p in module.parameters()]).norm()
            with torch.no_grad():
                for name, p in module.named_parameters():
                    grad = p.grad * min(1.0, 0.5 / (norm + 1e-6)) + 0.01 * p
                    buffer[name] = 0.9 * buffer[name] + grad
                    p -= 0.2 * buffer[name]
    for name, p in module.named_parameters():
        torch.testing.assert_close(report.delta[name], p.detach() - task.params[name], rtol=1e-12, atol=1e-12)
    assert report.metrics["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-12)
    assert (report.num_steps, report.num_examples) == (6, 10)
    assert (report.client_id, report.round_index, report.spec) == (3, 5, task.spec)


def test_train_depends_on_its_arguments_only(make_toy) -> None:
    toy = make_toy("dropout")
    cache = ModuleCache(toy.space)
    first = run(toy, toy.task(0.5), module_for=cache)
    run(toy, toy.task(0.5, seed=8, lr=5.0, momentum=0.9), module_for=cache)
    torch.manual_seed(123)
    state = torch.get_rng_state()
    again = run(toy, toy.task(0.5), module_for=cache)
    assert torch.equal(torch.get_rng_state(), state)
    assert same(first.delta, again.delta)
    assert first.metrics == again.metrics
    assert not same(first.delta, run(toy, toy.task(0.5, seed=8)).delta)


def test_train_draws_dropout_from_the_seed_of_the_task(make_toy) -> None:
    toy = make_toy("dropout")
    whole = {"batch_size": 10}  # one batch of all samples: the order within it cannot matter
    a, b, again = (run(toy, toy.task(1.0, seed=s, **whole)).delta for s in (1, 2, 1))
    assert same(a, again)
    assert not torch.allclose(a["b.weight"], b["b.weight"])


def test_train_leaves_what_the_server_sent_alone(make_toy) -> None:
    toy = make_toy("conv")
    task = toy.task(0.5)
    before = {name: value.clone() for name, value in {**toy.params, **toy.buffers}.items()}
    report = run(toy, task)
    assert same(before, {**toy.params, **toy.buffers})
    assert set(report.delta) == set(toy.params)
    for value in report.delta.values():
        assert value.is_contiguous()
        assert not value.requires_grad
        assert value.abs().sum() > 0 or value.ndim == 1


def test_train_reports_zero_for_parameters_that_are_frozen(make_toy) -> None:
    toy = make_toy("mlp")
    cache = ModuleCache(toy.space)
    task = toy.task(0.5)
    cache(task.spec).get_parameter("a.weight").requires_grad_(False)
    delta = run(toy, task, module_for=cache).delta
    assert not delta["a.weight"].any()
    assert delta["b.weight"].any()


def test_train_runs_bfloat16_close_to_float32(make_toy) -> None:
    toy = make_toy("conv")
    exact, rough = (run(toy, toy.task(1.0, precision=p)).delta for p in ("fp32", "bf16"))
    assert rough["conv.weight"].dtype == torch.float32
    assert not same(exact, rough)
    gap = (exact["b.weight"] - rough["b.weight"]).norm() / exact["b.weight"].norm()
    assert gap < 0.05


def test_train_accepts_a_client_with_one_sample(make_toy) -> None:
    toy = make_toy("mlp")
    report = run(toy, toy.task(0.25, local_epochs=3), indices=torch.tensor([4]))
    assert (report.num_steps, report.num_examples) == (3, 1)


def test_train_passes_a_generator_of_the_epoch_for_augmentation(make_toy) -> None:
    toy = make_toy("mlp")

    class Noisy(type(toy.data)):
        def batch(self, indices, generator=None):
            inputs, targets = super().batch(indices)
            return inputs + torch.randn(inputs.shape, generator=generator, dtype=inputs.dtype), targets

    noisy = Noisy(toy.data.inputs, toy.data.targets)
    first, again = (run(toy, toy.task(1.0), dataset=noisy).delta for _ in range(2))
    assert same(first, again)
    assert not same(first, run(toy, toy.task(1.0)).delta)


def test_train_names_client_round_and_step_when_the_loss_diverges(make_toy) -> None:
    toy = make_toy("mlp")
    task = toy.task(1.0, batch_size=2)
    order = torch.randperm(10, generator=SeedTree(task.seed).at("shuffle", 0).torch())
    toy.data.inputs[order[4]] = torch.nan
    with pytest.raises(
        DivergenceError, match=r"client 3, round 5, stage train step 2: the training loss is nan"
    ) as e:
        run(toy, task)
    assert (e.value.client, e.value.round_index, e.value.stage) == (3, 5, "train step 2")


def test_train_refuses_an_update_that_is_not_finite(make_toy) -> None:
    toy = make_toy("mlp")
    # One step: its loss is finite, the parameters after it are not.
    with pytest.raises(
        DivergenceError, match=r"client 3, round 5, stage train: the update of a\.weight is not"
    ):
        run(toy, toy.task(1.0, batch_size=10, lr=inf))


def test_module_cache_keeps_one_module_for_each_spec(make_toy) -> None:
    toy = make_toy("conv")
    cache = ModuleCache(toy.space)
    half = cache(toy.space.nested(0.5))
    assert cache(replace(toy.space.nested(0.5), width=0.45)) is half
    assert cache(toy.space.nested(1.0)) is not half
    assert half.get_parameter("conv.weight").is_contiguous(memory_format=torch.channels_last)


def test_module_cache_forgets_the_module_that_was_used_longest_ago(make_toy) -> None:
    toy = make_toy("mlp")
    space = type(toy.space)(toy.space.build, {"h": 40}, toy.space.axes)
    cache = ModuleCache(space)
    specs = [space.nested(k / 40) for k in range(1, MAX_MODULES + 2)]
    modules = [cache(spec) for spec in specs[:MAX_MODULES]]
    assert cache(specs[0]) is modules[0]
    cache(specs[MAX_MODULES])
    assert cache(specs[0]) is modules[0]
    assert cache(specs[1]) is not modules[1]


def test_train_leaves_no_gradients_behind(make_toy) -> None:
    toy = make_toy("mlp")
    cache = ModuleCache(toy.space)
    task = toy.task(0.5)
    run(toy, task, module_for=cache)
    assert all(p.grad is None for p in cache(task.spec).parameters())


def test_epoch_batches_hold_every_sample_once() -> None:
    for n in range(1, 12):
        batches = list(epoch_batches(torch.arange(100, 100 + n), 3, torch.Generator().manual_seed(n)))
        assert sorted(torch.cat(batches).tolist()) == list(range(100, 100 + n))
        assert all(2 <= len(batch) <= 4 for batch in batches) or n == 1


def test_epoch_batches_join_a_single_left_over_sample_to_the_batch_before() -> None:
    def sizes(n: int, batch_size: int) -> list[int]:
        return [len(b) for b in epoch_batches(torch.arange(n), batch_size, torch.Generator().manual_seed(0))]

    assert sizes(9, 4) == [4, 5]
    assert sizes(10, 4) == [4, 4, 2]
    assert sizes(1, 4) == [1]
    assert sizes(3, 1) == [1, 1, 1]


def test_train_survives_a_single_left_over_sample_when_batch_norm_sees_one_value_per_channel(
    make_toy,
) -> None:
    toy = make_toy("mlp")

    class Normed(type(toy.space)):
        def module(self, spec):
            h = len(spec.kept["h"])
            return nn.Sequential(nn.Linear(3, h), nn.BatchNorm1d(h), nn.Linear(h, 4)).double()

    space = Normed(toy.space.build, toy.space.sizes, {})
    module = space.module(space.nested(1.0))
    toy = replace(
        toy, space=space, params=dict(module.named_parameters()), buffers=dict(module.named_buffers())
    )
    assert run(toy, toy.task(1.0), indices=torch.arange(9)).num_steps == 2


def test_training_config_decays_the_learning_rate() -> None:
    config = TrainingConfig(lr=0.1, lr_decay=0.9)
    assert config.local(0).lr == 0.1
    assert config.local(3).lr == pytest.approx(0.0729, rel=1e-12)
    assert config.local(3, precision="bf16").precision == "bf16"


@pytest.mark.parametrize(
    "option",
    [
        {"rounds": 0},
        {"cohort": 0},
        {"lr": 0},
        {"lr": inf},
        {"momentum": 1},
        {"clip_norm": 0},
        {"lr_decay": 1.1},
    ],
)
def test_training_config_refuses_values_out_of_range(option) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        TrainingConfig(**option)
