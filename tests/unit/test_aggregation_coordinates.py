from __future__ import annotations

import pytest
import torch
from torch import nn

from widthwise.aggregation import CoordinateMean, aggregate, server_step
from widthwise.core.errors import ConfigError, RunError, SliceError
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


def test_coordinate_mean_merges_like_a_monoid(net):
    params, space = net
    shapes = {name: tuple(value.shape) for name, value in params.items()}
    generator = torch.Generator().manual_seed(0)
    updates = []
    for width, n in ((0.25, 3), (0.5, 7), (1.0, 2), (0.75, 5)):
        spec = space.nested(width)
        delta = {k: torch.randn(s, generator=generator) for k, s in space.shapes(spec).items()}
        updates.append((spec, delta, n))

    def fold(items):
        stats = CoordinateMean(shapes)
        for spec, delta, n in items:
            stats.add_(space, spec, delta, n)
        return stats

    whole = fold(updates)
    left, right = fold(updates[:1]), fold(updates[1:])
    right.merge_(left)
    empty = CoordinateMean(shapes)
    empty.merge_(whole)
    for name in shapes:
        torch.testing.assert_close(right.mean()[0][name], whole.mean()[0][name], rtol=1e-14, atol=1e-16)
        assert torch.equal(empty.mean()[0][name], whole.mean()[0][name])


def test_coordinate_mean_is_zero_not_nan_when_nothing_was_added(net):
    params, _ = net
    mean, covered = CoordinateMean({n: tuple(v.shape) for n, v in params.items()}).mean()
    assert not any(value.any() for value in mean.values())
    assert not any(mask.any() for mask in covered.values())


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
