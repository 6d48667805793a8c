from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from widthwise.aggregation import CoordinateMean, aggregate, server_step
from widthwise.aggregation.coordinates import MOST
from widthwise.core.errors import ConfigError, RunError, SliceError
from widthwise.core.records import Mask
from widthwise.slicing import trace


@pytest.fixture(scope="module")
def net():
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    return {n: p.detach() for n, p in model.named_parameters()}, trace(model, torch.zeros(2, 2))


def constant(space, spec, value):
    return {name: torch.full(shape, float(value)) for name, shape in space.shapes(spec).items()}


def test_aggregate_equals_hand_computed_mean_when_widths_differ(net):
    """Widths 1/2 (2 of 4 channels, 30 samples, delta 1) and 1 (10 samples, delta 5).

    Channels 0, 1: (30 * 1 + 10 * 5) / 40 = 2. Channels 2, 3: 5. The output bias is held by both: 2.
    """
    params, space = net
    half, full = space.nested(0.5), space.full()
    new, covered = aggregate(
        space, params, [(half, constant(space, half, 1), 30), (full, constant(space, full, 5), 10)]
    )
    change = {name: new[name] - params[name] for name in params}
    torch.testing.assert_close(change["0.bias"], torch.tensor([2.0, 2.0, 5.0, 5.0]))
    torch.testing.assert_close(change["0.weight"], torch.tensor([2.0, 2.0, 5.0, 5.0])[:, None].expand(4, 2))
    torch.testing.assert_close(change["2.weight"], torch.tensor([[2.0, 2.0, 5.0, 5.0]]))
    torch.testing.assert_close(change["2.bias"], torch.tensor([2.0]))
    assert all(mask.all() for mask in covered.values())


def test_aggregate_keeps_uncovered_coordinates_bit_for_bit(net):
    params, space = net
    spec = space.nested(0.25)
    new, covered = aggregate(space, params, [(spec, constant(space, spec, 1), 3)])
    for name, value in params.items():
        assert torch.equal(new[name][~covered[name]], value[~covered[name]])
        assert torch.equal(new[name][covered[name]], value[covered[name]] + 1)
    assert int(covered["0.weight"].sum()) == 2


def test_server_step_zeroes_uncovered_coordinates_under_the_zero_rule(net):
    params, space = net
    spec = space.nested(0.5)
    new, covered = aggregate(space, params, [(spec, constant(space, spec, 0), 3)], uncovered="zero")
    assert not new["0.weight"][~covered["0.weight"]].any()
    assert torch.equal(new["0.weight"][covered["0.weight"]], params["0.weight"][covered["0.weight"]])


def test_coordinate_mean_takes_sums_for_their_updates(net):
    params, space = net
    shapes = {name: tuple(value.shape) for name, value in params.items()}
    half, full = space.nested(0.5), space.full()
    one, other = CoordinateMean(shapes), CoordinateMean(shapes)
    for value, weight in ((1.0, 30.0), (4.0, 10.0)):
        one.add_(space, half, constant(space, half, value), weight)
    total = {name: value.double() * (30 * 1 + 10 * 4) for name, value in constant(space, half, 1).items()}
    other.add_sum_(space, half, total, 40.0)
    for stats in (one, other):
        stats.add_(space, full, constant(space, full, 5), 10.0)
    for mine, theirs in zip(one.mean(), other.mean(), strict=True):
        for name, value in mine.items():
            torch.testing.assert_close(theirs[name], value, rtol=1e-14, atol=0)


def test_coordinate_mean_loses_none_of_many_slices():
    """More different slices than wait to be weighed: update i = 0 to 99 has channel i % 64 and the value i.

    The mean of channels below 36 is that of c and c + 64.
    """
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    space = trace(model, torch.zeros(2, 8))
    group = space.groups[0].name
    stats = CoordinateMean({name: tuple(p.shape) for name, p in model.named_parameters()})
    assert MOST < 64
    for i in range(100):
        spec = replace(space.nested(0.01), kept={group: range(i % 64, i % 64 + 1)})
        stats.add_(space, spec, constant(space, spec, i), 1.0)
    mean, _ = stats.mean()
    expected = torch.tensor([c + 32.0 if c < 36 else c for c in range(64)], dtype=torch.float64)
    torch.testing.assert_close(mean["0.bias"], expected)
    torch.testing.assert_close(mean["2.weight"][0], expected)


@pytest.mark.parametrize("count", [1, 7, MOST, 2 * MOST + 5])
def test_coordinate_mean_equals_a_loop_over_updates_in_float64(net, count):
    """Slices of several widths and masks, one after the other and in turn."""
    params, space = net
    generator = torch.Generator().manual_seed(count)
    shapes = {name: tuple(value.shape) for name, value in params.items()}
    total = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    weight = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    stats = CoordinateMean(shapes)
    for i in range(count):
        spec = space.nested((0.25, 0.5, 0.5, 1.0, 0.75)[i % 5])
        if i % 5 == 3 and i % 2:
            kept = {"2.weight": torch.rand(1, 4, generator=generator) > 0.5}
            spec = replace(spec, mask=Mask(kept, {"2.weight": 0.0}))
        delta = {n: torch.randn(s, generator=generator) for n, s in space.shapes(spec).items()}
        stats.add_(space, spec, delta, 1.5 + i)
        for name, held in space.mask(spec).items():
            if spec.mask is not None and name in spec.mask.kept:
                held = held & spec.mask.kept[name]
            wide = torch.zeros(shapes[name], dtype=torch.float64)
            space.scatter_add_({name: wide}, {name: delta[name]}, spec)
            total[name] += torch.where(held, (1.5 + i) * wide, 0.0)
            weight[name] += (1.5 + i) * held
    mean, covered = stats.mean()
    for name in shapes:
        assert torch.equal(covered[name], weight[name] > 0)
        expected = torch.where(covered[name], total[name] / weight[name].clamp(min=1), 0.0)
        torch.testing.assert_close(mean[name], expected, rtol=1e-12, atol=1e-15)


def test_coordinate_mean_gives_the_same_bits_again(net):
    params, space = net
    generator = torch.Generator().manual_seed(1)
    specs = [space.nested(width) for width in (1.0, 0.5, 0.5, 0.75, 0.25) * 4]
    updates = [
        (spec, {n: torch.randn(s, generator=generator) for n, s in space.shapes(spec).items()})
        for spec in specs
    ]
    whole, again = (CoordinateMean({n: tuple(v.shape) for n, v in params.items()}) for _ in "ab")
    for i, (spec, delta) in enumerate(updates):
        for stats in (whole, again):
            stats.add_(space, spec, delta, 1.0 + i)
    for one, other in zip(whole.mean(), again.mean(), strict=True):
        assert all(torch.equal(other[name], value) for name, value in one.items())


def test_coordinate_mean_reads_tensors_that_are_not_contiguous(net):
    params, space = net
    full = space.full()
    delta = {n: torch.randn(s).t().contiguous().t() for n, s in space.shapes(full).items()}
    stats = CoordinateMean({n: tuple(v.shape) for n, v in params.items()})
    stats.add_(space, full, delta, 2.0)
    for name, value in stats.mean()[0].items():
        assert torch.equal(value.float(), delta[name])


def test_coordinate_mean_is_zero_not_nan_when_nothing_was_added(net):
    params, _ = net
    mean, covered = CoordinateMean({n: tuple(v.shape) for n, v in params.items()}).mean()
    assert not any(value.any() for value in mean.values())
    assert not any(mask.any() for mask in covered.values())


def test_server_step_takes_parameters_of_any_memory_format_that_need_gradients():
    value = nn.Parameter(torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last))
    step = torch.randn(3, 4, 2, 2, dtype=torch.float64).transpose(0, 1)
    found = server_step({"w": value}, {"w": step}, {"w": torch.ones(4, 3, 2, 2, dtype=torch.bool)})["w"]
    assert torch.equal(found, value.detach() + step.float())
    assert not found.requires_grad


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_aggregate_refuses_a_weight_that_is_no_positive_number(net, weight):
    params, space = net
    full = space.full()
    with pytest.raises(SliceError, match="must be a positive number"):
        aggregate(space, params, [(full, constant(space, full, 1), weight)])


def test_aggregate_refuses_an_update_in_the_shape_of_another_slice(net):
    params, space = net
    with pytest.raises(SliceError, match=r"shape \(4, 2\), but its slice at width 0.5 has shape \(2, 2\)"):
        aggregate(space, params, [(space.nested(0.5), constant(space, space.full(), 1), 1)])


def test_aggregate_refuses_an_update_that_lacks_a_parameter(net):
    params, space = net
    delta = constant(space, space.full(), 1)
    del delta["2.bias"]
    with pytest.raises(SliceError, match=r"other parameters than its slice \(differing: 2.bias\)"):
        aggregate(space, params, [(space.full(), delta, 1)])


def test_aggregate_refuses_a_non_finite_update(net):
    params, space = net
    delta = constant(space, space.full(), 1)
    delta["2.bias"][0] = float("nan")
    with pytest.raises(RunError, match=r"stage aggregation: the update of '2.bias' is not finite"):
        aggregate(space, params, [(space.full(), delta, 1)])


def test_server_step_names_the_known_rules_when_the_rule_is_unknown(net):
    params, _ = net
    with pytest.raises(ConfigError, match=r"uncovered is 'drop'.*Known: keep, zero"):
        server_step(params, {}, {}, "drop")
