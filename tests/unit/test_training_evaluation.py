from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from widthwise.training import evaluate, recalibrate, running_statistics


def test_evaluate_counts_correct_samples_and_averages_the_loss(make_toy) -> None:
    toy = make_toy("mlp")
    module = toy.space.module(toy.space.nested(1.0))
    outputs = module(toy.data.inputs)
    accuracy, loss = evaluate(module, toy.data, batch_size=3)  # 3 + 3 + 3 + 1
    assert accuracy == (outputs.argmax(1) == toy.data.targets).sum().item() / 10
    assert loss == pytest.approx(cross_entropy(outputs, toy.data.targets).item(), rel=1e-12)


def test_evaluate_switches_dropout_off_and_restores_the_mode(make_toy) -> None:
    toy = make_toy("dropout")
    module = toy.space.module(toy.space.nested(1.0)).train()
    assert evaluate(module, toy.data) == evaluate(module, toy.data)
    assert module.training
    evaluate(module.eval(), toy.data)
    assert not module.training


def test_evaluate_agrees_roughly_when_precision_is_bfloat16(make_toy) -> None:
    toy = make_toy("conv")
    module = toy.space.module(toy.space.nested(1.0))
    exact, rough = evaluate(module, toy.data), evaluate(module, toy.data, precision="bf16")
    assert rough.loss == pytest.approx(exact.loss, rel=0.05)
    assert rough.loss != exact.loss


def batch_norms() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.5), nn.BatchNorm2d(3))


class Captured(nn.Module):
    """The same network as a captured graph writes it: ATen calls on parameters, no nn.BatchNorm2d."""

    def __init__(self, source: nn.Sequential) -> None:
        super().__init__()
        for name, layer in source.named_children():
            self.add_module(name, nn.Module())
            for key, value in layer.named_parameters():
                self.get_submodule(name).register_parameter(key, value)
            for key, value in layer.named_buffers():
                self.get_submodule(name).register_buffer(key, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        conv, first, _, _, second = self.children()
        x = torch.ops.aten.conv2d.default(x, conv.weight, conv.bias)
        x = torch.relu(self._norm(x, first))
        return self._norm(torch.ops.aten.dropout.default(x, 0.5, self.training), second)

    def _norm(self, x: torch.Tensor, of: nn.Module) -> torch.Tensor:
        statistics = (of.running_mean, of.running_var, self.training, 0.1, 1e-5, True)
        return torch.ops.aten.batch_norm.default(x, of.weight, of.bias, *statistics)


@pytest.mark.parametrize("form", ["module", "graph"])
def test_recalibrate_makes_cumulative_averages_like_momentum_none(form: str) -> None:
    torch.manual_seed(0)
    module = batch_norms()
    batches = torch.randn(3, 4, 1, 6, 6).unbind()
    expected = batch_norms()
    expected.load_state_dict(module.state_dict())
    for layer in expected:
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None
    expected.train()[3].eval()  # dropout stays off
    with torch.no_grad():
        for batch in batches:
            expected(batch)

    subject = (Captured(module) if form == "graph" else module).train()
    for buffer in subject.buffers():
        buffer.fill_(7)  # what was there before must not matter
    recalibrate(subject, batches)
    got = dict(subject.named_buffers())
    for name, value in expected.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            torch.testing.assert_close(got[name], value, rtol=1e-5, atol=1e-6)


def test_recalibrate_changes_nothing_but_statistics(make_toy) -> None:
    toy = make_toy("conv")
    module = toy.space.module(toy.space.nested(1.0)).train()
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    recalibrate(module, [toy.data.inputs])
    assert module.training
    assert all(torch.equal(before[name], p) for name, p in module.named_parameters())
    assert not torch.equal(module.get_buffer("norm.running_mean"), torch.zeros(8))


def test_recalibrate_leaves_a_module_without_batch_norm_alone(make_toy) -> None:
    toy = make_toy("dropout")
    module = toy.space.module(toy.space.nested(1.0))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    recalibrate(module, [toy.data.inputs])
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


class Twice(nn.Module):
    """One batch norm at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.norm(x) * 2 + 1)


def test_recalibrate_averages_over_both_uses_of_a_shared_batch_norm() -> None:
    torch.manual_seed(0)
    module, batch = Twice(), torch.randn(64, 3) * 5 + 2
    recalibrate(module, [batch])
    # Its first use sees the batch, its second 2 * normalised + 1, whose mean is 1.
    torch.testing.assert_close(module.norm.running_mean, (batch.mean(0) + 1) / 2)


def test_recalibrate_leaves_frozen_batch_norms_as_they_are() -> None:
    class Frozen(nn.BatchNorm2d):
        def train(self, mode: bool = True) -> Frozen:
            return super().train(False)

    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 3, 3), Frozen(3), nn.ReLU(), nn.BatchNorm2d(3)).train()
    assert list(running_statistics(module, torch.randn(4, 1, 6, 6))) == ["3.running_mean"]
    recalibrate(module, [torch.randn(4, 1, 6, 6)])
    assert torch.equal(module[1].running_mean, torch.zeros(3))
    assert not torch.equal(module[3].running_mean, torch.zeros(3))


def test_recalibrate_estimates_running_statistics_of_instance_norms() -> None:
    torch.manual_seed(0)
    module, batch = nn.Sequential(nn.InstanceNorm2d(3, track_running_stats=True)), torch.randn(4, 3, 6, 6) + 2
    recalibrate(module, [batch])
    torch.testing.assert_close(module[0].running_mean, batch.mean((0, 2, 3)))
    assert not running_statistics(nn.Sequential(nn.InstanceNorm2d(3)), batch)


def test_running_statistics_leaves_module_and_generator_as_they_were() -> None:
    torch.manual_seed(0)
    module = batch_norms().train()
    module[3].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()
    found = running_statistics(module, torch.randn(1, 1, 6, 6, generator=torch.Generator().manual_seed(1)))
    assert list(found) == ["1.running_mean", "4.running_mean"]
    assert found["1.running_mean"] is module[1].running_mean
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert [part.training for part in module] == [True, True, True, False, True]
