"""Random networks (``random_nets``), random widths, random kept channels: what must hold for every model."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_nets import Net, nets
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from widthwise.core.params import Params, clone
from widthwise.core.records import SliceSpec, ascending
from widthwise.slicing import WidthSpace, trace
from widthwise.slicing.channels import along
from widthwise.slicing.ir import GroupCount
from widthwise.slicing.kernels import DrawnAlike
from widthwise.slicing.layout import groups_of
from widthwise.slicing.space import channels_at

# A net takes a tenth of a second, so a failing one is made smaller, but not explained as well.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
FEW = settings(deadline=None, max_examples=14, phases=PHASES, suppress_health_check=[HealthCheck.too_slow])
WIDTHS = st.floats(0.01, 1.0)


def traced(net: Net) -> WidthSpace:
    """Trace without the self-check, so that it is the property that finds a fault."""
    return trace(net.model, net.example, heads=net.heads, check=False)


@st.composite
def specs(draw: st.DrawFn, space: WidthSpace) -> SliceSpec:
    """Draw any kept channels, at least one of each group."""
    kept = {g.name: draw(st.sets(st.integers(0, g.size - 1), min_size=1)) for g in space.groups}
    return SliceSpec(0.5, {name: ascending(channels) for name, channels in kept.items()})


def named(model: nn.Module) -> Params:
    """Return detached copies of parameters and buffers."""
    return clone({**dict(model.named_parameters()), **dict(model.named_buffers())})


def results(module: nn.Module, tensors: Params, x: Tensor) -> tuple[Tensor, Params, Params]:
    """Return output, gradients of some loss (zero for what is not used) and buffers after a forward."""
    with torch.random.fork_rng(), DrawnAlike():
        torch.manual_seed(0)  # dropout
        names = [name for name, _ in module.named_parameters()]
        tensors = {**tensors, **{name: tensors[name].clone().requires_grad_() for name in names}}
        output = functional_call(module, tensors, (x,))
    weights = torch.linspace(0.5, 1.5, output.numel(), dtype=output.dtype).reshape(output.shape)
    found = torch.autograd.grad((output * weights).sin().sum(), [tensors[name] for name in names])
    buffers = {name: tensors[name] for name, _ in module.named_buffers()}
    return output.detach(), dict(zip(names, found, strict=True)), buffers


@FEW
@given(nets())
def test_full_width_is_the_model_to_the_bit_in_both_modes(net: Net) -> None:
    space = traced(net)
    sub = space.extract(net.model, space.full())
    assert sub.training == net.model.training
    for training in (True, False):
        net.model.train(training), sub.train(training)
        output, gradients, buffers = results(net.model, named(net.model), net.inputs(3))
        mine, own, kept = results(sub, named(sub), net.inputs(3))
        assert torch.equal(output, mine)
        assert gradients.keys() == own.keys()
        assert all(torch.equal(gradients[name], own[name]) for name in own)
        assert buffers.keys() == kept.keys()
        assert all(torch.equal(buffers[name], kept[name]) for name in kept if "num_batches" not in name)


@settings(FEW, max_examples=25)
@given(nets(mixing=False), st.data())
def test_any_slice_has_the_outputs_and_gradients_of_the_masked_model(net: Net, data: st.DataObject) -> None:
    assert_masked(net, data)


@FEW
@given(nets(mixing=False, depth=1, remember=True), st.data())
def test_any_slice_of_a_recurrent_net_is_the_masked_model(net: Net, data: st.DataObject) -> None:
    assert_masked(net, data)


def assert_masked(net: Net, data: st.DataObject) -> None:
    space = traced(net)
    spec = data.draw(specs(space))
    masked = named(net.model)
    for name, mask in space.mask(spec).items():
        masked[name] *= mask
    x = net.inputs(3)
    sub = space.extract(net.model, spec)
    output, gradients, buffers = results(sub, named(sub), x)
    expected, full_gradients, full_buffers = results(net.model, masked, x)
    torch.testing.assert_close(output, expected, rtol=1e-8, atol=1e-10)
    assert gradients.keys() == full_gradients.keys()
    kept = space.take({**full_gradients, **full_buffers}, spec)
    for name, value in {**gradients, **buffers}.items():
        if "num_batches" not in name:  # a sub-model does not count
            torch.testing.assert_close(value, kept[name], rtol=1e-8, atol=1e-10, msg=f"{name} differs")


@FEW
@given(nets(), st.data())
def test_extract_takes_the_channels_that_the_spec_names(net: Net, data: st.DataObject) -> None:
    """Positions come from the other algebra of layouts, which works with masks of channels."""
    space = traced(net)
    spec = data.draw(specs(space))
    chosen = {
        g.name: torch.isin(torch.arange(g.size), torch.tensor(list(spec.kept[g.name])))[None]
        for g in space.groups
    }
    sub = named(space.extract(net.model, spec))
    for name, layout in (space.parameters | space.buffers).items():
        value = named(net.model)[name]
        for dim, axis in enumerate(layout.axes):
            if groups_of(axis):
                value = value.index_select(dim, along(axis, chosen)[0].nonzero()[:, 0])
        assert torch.equal(sub[name], value)


@FEW
@given(nets(), st.data())
def test_scatter_puts_back_what_extract_took_and_nothing_else(net: Net, data: st.DataObject) -> None:
    space = traced(net)
    spec = data.draw(specs(space))
    own = {name: p.detach() for name, p in net.model.named_parameters()}
    sub = {name: p.detach() for name, p in space.extract(net.model, spec).named_parameters()}
    assert {name: tuple(value.shape) for name, value in sub.items()} == space.shapes(spec)
    into = {name: torch.full_like(value, -2.0) for name, value in own.items()}
    space.scatter_add_(into, sub, spec)
    masks = space.mask(spec)
    for name, value in own.items():
        assert torch.equal(into[name], torch.where(masks[name], value - 2.0, -2.0))
        assert int(masks[name].sum()) == sub[name].numel()
        assert torch.equal(value[masks[name]].flatten(), sub[name].flatten())  # in the same order


@FEW
@given(nets(), WIDTHS, WIDTHS)
def test_everything_but_the_output_is_cut_and_masks_are_nested(net: Net, one: float, other: float) -> None:
    space = traced(net)
    narrow, wide = (space.nested(width) for width in sorted((one, other)))
    inside, outside = space.mask(narrow), space.mask(wide)
    assert all(bool((inside[name] <= outside[name]).all()) for name in inside)
    for spec in (narrow, wide):
        assert space.counts(spec) == {g.name: channels_at(spec.width, g.size) for g in space.groups}
    small = space.mask(space.nested(0.01))
    whole = {name for name, mask in small.items() if mask.all()}
    assert whole <= {"head.bias"}, "a tracer that cuts nothing would pass all the other tests"


@FEW
@given(nets(), st.data())
def test_macs_are_those_that_torch_counts(net: Net, data: st.DataObject) -> None:
    space = traced(net)
    spec = data.draw(specs(space))
    sub = space.extract(net.model, spec).eval()
    # torch's counter has no number for the fused attention of a CPU.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        sub(net.inputs(3))
    assert counter.get_total_flops() == 2 * 3 * space.macs(spec)


@FEW
@given(nets())
def test_self_check_finds_no_fault_where_there_is_none(net: Net) -> None:
    trace(net.model, net.example, heads=net.heads, check=True)


@FEW
@given(nets(), st.data())
def test_take_within_is_take_for_any_spec_inside(net: Net, data: st.DataObject) -> None:
    space = traced(net)
    outer = data.draw(specs(space))
    chosen = {
        name: data.draw(st.sets(st.sampled_from(list(kept)), min_size=1)) for name, kept in outer.kept.items()
    }
    inner = SliceSpec(0.3, {name: ascending(channels) for name, channels in chosen.items()})
    params = {name: p.detach() for name, p in net.model.named_parameters()}
    within = space.take_within(space.take(params, outer), outer, inner)
    direct = space.take(params, inner)
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
