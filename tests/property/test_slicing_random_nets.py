"""Random architectures, random widths, random kept channels."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from widthwise.core.records import SliceSpec
from widthwise.slicing import WidthSpace, channels_at, trace
from widthwise.slicing.ir import GroupCount

CHANNELS = st.integers(1, 7)
FEW = settings(deadline=None, max_examples=6)


@st.composite
def nets(draw: st.DrawFn) -> tuple[nn.Module, torch.Tensor]:
    """Draw a CNN of a few convolutions and poolings, or an MLP, and an input for it."""
    layers: list[nn.Module] = []
    inputs, side = draw(st.integers(1, 3)), 6
    for channels in draw(st.lists(CHANNELS, max_size=2)):
        layers += [nn.Conv2d(inputs, channels, 3, padding=1, bias=draw(st.booleans())), nn.ReLU()]
        if draw(st.booleans()):
            layers.append(nn.MaxPool2d(2, ceil_mode=draw(st.booleans())))
            side = -(-side // 2) if layers[-1].ceil_mode else side // 2
        inputs = channels
    example = torch.zeros(2, *((next(iter(layers)).in_channels,) if layers else (inputs,)), 6, 6)
    layers.append(nn.Flatten())
    features = inputs * side * side
    for width in draw(st.lists(CHANNELS, max_size=2)):
        layers += [nn.Linear(features, width), draw(st.sampled_from([nn.ReLU(), nn.Tanh(), nn.GELU()]))]
        features = width
    layers.append(nn.Linear(features, 3))
    return nn.Sequential(*layers).double(), example.double()


def draw_spec(data: st.DataObject, space: WidthSpace) -> SliceSpec:
    kept: dict[str, Any] = {}
    for group in space.groups:
        chosen = data.draw(st.sets(st.integers(0, group.size - 1), min_size=1))
        kept[group.name] = tuple(sorted(chosen))
    return SliceSpec(0.5, kept)


@FEW
@given(nets(), st.data())
def test_any_slice_of_any_net_equals_its_masked_form(
    net: tuple[nn.Module, torch.Tensor], data: st.DataObject
) -> None:
    model, example = net
    space = trace(model, example)
    spec = draw_spec(data, space)
    x = torch.randn(3, *example.shape[1:], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sub = space.extract(model, spec)
    masked = {name: p.detach() * space.mask(spec)[name] for name, p in model.named_parameters()}
    leaves = {name: value.requires_grad_() for name, value in masked.items()}
    expected = torch.func.functional_call(model, leaves, (x,))
    output = sub(x)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)
    target = torch.tensor([0, 1, 2])
    functional.cross_entropy(output, target).backward()
    functional.cross_entropy(expected, target).backward()
    kept = space.take({name: leaf.grad for name, leaf in leaves.items()}, spec)  # type: ignore[misc]
    for name, parameter in sub.named_parameters():
        torch.testing.assert_close(parameter.grad, kept[name], rtol=0, atol=1e-10)
    into = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    space.scatter_add_(into, {name: p.detach() for name, p in sub.named_parameters()}, spec)
    assert all(torch.equal(into[name], leaves[name].detach()) for name in into)


NET = nn.Sequential(nn.Conv2d(1, 7, 3), nn.GroupNorm(7, 7), nn.Flatten(), nn.Linear(28, 10), nn.Linear(10, 2))
SPACE = trace(NET, torch.zeros(2, 1, 4, 4))
WIDTHS = st.floats(0.01, 1.0)


@settings(deadline=None, max_examples=50)
@given(WIDTHS, WIDTHS)
def test_masks_are_nested_in_the_width(one: float, other: float) -> None:
    small, large = (SPACE.mask(SPACE.nested(width)) for width in sorted((one, other)))
    assert all(bool((small[name] <= large[name]).all()) for name in small)
    assert SPACE.num_params(SPACE.nested(min(one, other))) <= SPACE.num_params(SPACE.nested(max(one, other)))


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_take_within_is_take_for_any_spec_inside(data: st.DataObject) -> None:
    outer = draw_spec(data, SPACE)
    inner_kept = {
        name: tuple(sorted(data.draw(st.sets(st.sampled_from(list(kept)), min_size=1))))
        for name, kept in outer.kept.items()
    }
    inner = SliceSpec(0.3, inner_kept)
    params = {name: p.detach() for name, p in NET.named_parameters()}
    within = SPACE.take_within(SPACE.take(params, outer), outer, inner)
    direct = SPACE.take(params, inner)
    assert all(torch.equal(within[name], direct[name]) for name in params)


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 1000))
def test_channels_at_is_exact_for_fractions(part: int, whole: int, channels: int) -> None:
    part, whole = sorted((part, whole))
    assert channels_at(part / whole, channels) == -(-part * channels // whole)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 24), st.integers(1, 6))
def test_group_norm_keeps_channels_per_group_where_they_divide(kept: int, groups: int) -> None:
    per_group = 24 // groups
    count = GroupCount(("c",), per_group).at({"c": kept})
    assert kept % count == 0
    assert 1 <= count <= max(1, round(kept / per_group))
    if kept % per_group == 0:
        assert count == kept // per_group
