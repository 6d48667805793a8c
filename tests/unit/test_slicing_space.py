"""Widths, specs, and slicing of tensors."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

from widthwise.core.errors import SliceError
from widthwise.core.params import load_
from widthwise.core.records import SliceSpec
from widthwise.slicing import ChannelGroup, WidthSpace, channels_at, trace


class Net(nn.Module):
    """Two inputs' worth of everything that slicing must tell apart."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6 * 4, 5)
        self.head = nn.Linear(5, 3, bias=False)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.unused = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.norm(self.conv(x))).flatten(1)
        return self.scale * self.head(torch.relu(self.fc(h)))


@pytest.fixture(scope="module")
def net() -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Net()


@pytest.fixture(scope="module")
def space(net: Net) -> WidthSpace:
    return trace(net, torch.zeros(2, 1, 4, 4))


@pytest.fixture
def params(net: Net) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in net.named_parameters()}


SCATTERED = SliceSpec(0.5, {"conv": (0, 2, 5), "fc": range(1, 4)})


# p * C in exact arithmetic; the float product of each is a little larger.
@pytest.mark.parametrize(
    ("width", "channels", "kept"),
    [
        (0.07, 100, 7),
        (0.28, 25, 7),
        (0.6000000000000001, 5, 3),
        (0.14, 50, 7),
        (0.55, 100, 55),
        (0.56, 25, 14),
        (0.5, 5, 3),
        (0.01, 10, 1),
        (1e-12, 10, 1),
        (1.0, 10, 10),
    ],
)
def test_channels_at_is_the_ceiling_without_float_noise(width: float, channels: int, kept: int) -> None:
    assert channels_at(width, channels) == kept


@pytest.mark.parametrize("width", [0.0, -0.5, 1.0000001, float("nan")])
def test_nested_refuses_a_width_outside_its_range(space: WidthSpace, width: float) -> None:
    with pytest.raises(SliceError, match=rf"width is {width}, but a width is in \(0, 1\]. Choose one"):
        space.nested(width)


def test_space_lists_groups_and_parameters_under_the_models_names(space: WidthSpace, net: Net) -> None:
    assert space.groups == (ChannelGroup("conv", 6), ChannelGroup("fc", 5))
    assert list(space.parameters) == [name for name, _ in net.named_parameters()]
    assert list(space.buffers) == [name for name, _ in net.named_buffers()]
    assert space.parameters["fc.weight"].axes == (("fc",), ("conv", 4))
    assert space.parameters["fc.weight"].groups == {"conv", "fc"}
    assert space.parameters["unused"].axes == ((4,),)
    assert space.buffers["norm.running_mean"].axes == (("conv",),)
    assert space.output_parameters == ("head.weight",)


def test_shapes_follow_the_kept_channels(space: WidthSpace) -> None:
    assert space.shapes(space.nested(0.5)) == {
        "scale": (),
        "unused": (4,),
        "conv.weight": (3, 1, 3, 3),
        "conv.bias": (3,),
        "norm.weight": (3,),
        "norm.bias": (3,),
        "fc.weight": (3, 12),
        "fc.bias": (3,),
        "head.weight": (3, 3),
    }
    assert space.num_params(space.nested(0.5)) == 1 + 4 + 27 + 3 + 3 + 3 + 36 + 3 + 9
    assert space.upload_bytes(space.nested(0.5)) == 4 * 89


def test_take_keeps_whole_blocks_of_flattened_channels(
    space: WidthSpace, params: dict[str, torch.Tensor]
) -> None:
    columns = [4 * channel + i for channel in (0, 2, 5) for i in range(4)]
    taken = space.take(params, SCATTERED)
    assert torch.equal(taken["fc.weight"], params["fc.weight"][1:4][:, columns])
    assert torch.equal(taken["conv.weight"], params["conv.weight"][[0, 2, 5]])
    assert torch.equal(taken["head.weight"], params["head.weight"][:, 1:4])
    assert torch.equal(taken["scale"], params["scale"])


def test_take_gives_views_when_stretches_of_channels_are_kept(
    space: WidthSpace, params: dict[str, torch.Tensor]
) -> None:
    taken = space.take(params, space.nested(0.5))
    for name in ("scale", "unused", "conv.weight", "conv.bias", "head.weight"):
        assert taken[name].untyped_storage().data_ptr() == params[name].untyped_storage().data_ptr()


def test_take_slices_buffers(space: WidthSpace, net: Net) -> None:
    taken = space.take(dict(net.named_buffers()), SCATTERED)
    assert taken["norm.running_var"].shape == (3,)
    assert taken["norm.num_batches_tracked"].shape == ()


def test_take_within_equals_take_from_the_global_tensors(
    space: WidthSpace, params: dict[str, torch.Tensor]
) -> None:
    outer = SliceSpec(0.9, {"conv": (0, 2, 3, 5), "fc": range(1, 5)})
    within = space.take_within(space.take(params, outer), outer, SCATTERED)
    direct = space.take(params, SCATTERED)
    assert all(torch.equal(within[name], direct[name]) for name in params)


def test_take_within_refuses_a_spec_that_is_not_inside(space: WidthSpace) -> None:
    with pytest.raises(SliceError, match="keeps channel 5 of conv, but the outer spec does not"):
        space.take_within({}, space.nested(0.5), SCATTERED)


@pytest.mark.parametrize("scale", [1.0, -0.5])
def test_scatter_adds_to_the_kept_coordinates_only(
    space: WidthSpace, params: dict[str, torch.Tensor], scale: float
) -> None:
    for spec in (space.nested(0.4), SCATTERED, SliceSpec(0.5, {"conv": (0, 2), "fc": (0, 4)}), space.full()):
        into = {name: torch.full_like(value, 7.0) for name, value in params.items()}
        space.scatter_add_(into, space.take(params, spec), spec, scale)
        for name, mask in space.mask(spec).items():
            assert torch.equal(into[name], torch.where(mask, 7.0 + scale * params[name], 7.0))


def test_mask_counts_the_parameters_of_the_sub_model(space: WidthSpace) -> None:
    masks = space.mask(SCATTERED)
    assert set(masks) == set(space.parameters)
    assert all(
        mask.dtype is torch.bool and mask.shape == space.parameters[n].shape for n, mask in masks.items()
    )
    assert sum(int(mask.sum()) for mask in masks.values()) == space.num_params(SCATTERED)


def test_module_has_the_models_names_and_flags_in_the_models_order(space: WidthSpace, net: Net) -> None:
    module = space.module(space.nested(0.5))
    assert list(module.state_dict()) == list(net.state_dict())
    assert [(n, p.requires_grad) for n, p in module.named_parameters()] == [
        (n, p.requires_grad) for n, p in net.named_parameters()
    ]
    assert {n: tuple(p.shape) for n, p in module.named_parameters()} == space.shapes(space.nested(0.5))


def test_extract_copies_values_and_the_current_flags(space: WidthSpace) -> None:
    net = Net()
    net.fc.bias.requires_grad_(False)
    module = space.extract(net.eval(), space.full())
    assert not module.training
    assert not module.get_parameter("fc.bias").requires_grad
    with torch.no_grad():
        module.get_parameter("fc.bias").add_(1.0)
    assert not torch.equal(module.get_parameter("fc.bias"), net.fc.bias)


def test_module_counts_no_batches_but_updates_running_statistics(space: WidthSpace, net: Net) -> None:
    module = space.extract(net, space.nested(0.5)).train()
    before = module.get_buffer("norm.running_mean").clone()
    module(torch.randn(4, 1, 4, 4, generator=torch.Generator().manual_seed(0)))
    assert not torch.equal(module.get_buffer("norm.running_mean"), before)
    assert module.get_buffer("norm.num_batches_tracked") == net.norm.num_batches_tracked


def test_module_follows_a_cast(space: WidthSpace, net: Net) -> None:
    module = space.extract(net, space.nested(0.5)).double()
    assert module(torch.zeros(2, 1, 4, 4, dtype=torch.float64)).dtype is torch.float64


def test_module_pickles_and_runs_the_same(space: WidthSpace, net: Net) -> None:
    module = space.extract(net, space.nested(0.5)).eval()
    x = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(pickle.loads(pickle.dumps(module))(x), module(x))


def test_load_fills_parameters_and_buffers_by_name(space: WidthSpace, net: Net) -> None:
    spec = space.nested(0.5)
    module = space.module(spec)
    values = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    load_(module, space.take(values, spec))
    expected = space.extract(net, spec).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in module.state_dict().items())


def test_space_pickles_without_tensors_or_plans(space: WidthSpace, net: Net) -> None:
    space.take(dict(net.named_parameters()), SCATTERED)
    data = pickle.dumps(space)
    copy: WidthSpace = pickle.loads(data)
    assert len(data) < 20_000
    assert b"_rebuild_tensor" not in data
    assert copy.groups == space.groups
    assert copy.shapes(SCATTERED) == space.shapes(SCATTERED)
    assert copy.macs(SCATTERED) == space.macs(SCATTERED)
    assert "conv: 6" in repr(copy)


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ({"conv": range(3)}, "the spec's groups are conv, but this space has conv, fc"),
        (
            {"conv": range(7), "fc": range(1)},
            r"kept channels of conv are range\(0, 7\), but they must be asc",
        ),
        ({"conv": (2, 1), "fc": range(1)}, r"kept channels of conv are \(2, 1\), but they must be ascending"),
        ({"conv": (1, 1), "fc": range(1)}, r"kept channels of conv are \(1, 1\), but they must be ascending"),
        ({"conv": (-1, 1), "fc": range(1)}, r"kept channels of conv are \(-1, 1\), .* in \[0, 6\)"),
        ({"conv": (), "fc": range(1)}, r"kept channels of conv are \(\), .* at least one"),
    ],
)
def test_space_refuses_a_spec_that_does_not_fit(
    space: WidthSpace, kept: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(SliceError, match=message):
        space.shapes(SliceSpec(0.5, kept))


def test_take_refuses_an_unknown_name(space: WidthSpace) -> None:
    with pytest.raises(SliceError, match=r"'fc3\.weight' is no parameter or buffer of this space"):
        space.take({"fc3.weight": torch.zeros(2)}, space.full())


def test_take_refuses_another_shape(space: WidthSpace) -> None:
    with pytest.raises(SliceError, match=r"fc.bias has shape \(4,\), but the space expects \(5,\)"):
        space.take({"fc.bias": torch.zeros(4)}, space.full())


def test_scatter_refuses_values_of_another_spec(space: WidthSpace) -> None:
    with pytest.raises(SliceError, match=r"fc.bias has shape \(5,\), but this spec keeps \(3,\)"):
        space.scatter_add_({"fc.bias": torch.zeros(5)}, {"fc.bias": torch.zeros(5)}, space.nested(0.5))


def test_extract_refuses_another_model(space: WidthSpace) -> None:
    with pytest.raises(SliceError, match=r"the model's tensors differ in .*conv.bias.*Trace this model"):
        space.extract(nn.Linear(2, 2), space.full())
