"""Convolutions, shuffles, pooling, resizing, sampling; normalisation of weights and of values."""

from __future__ import annotations

from typing import Any

import torch
from operations import Cases
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

CASES = Cases()
add = CASES.add
IMAGE = (2, 3, 6, 6)


def convs(*channels: int, **parts: nn.Module) -> dict[str, nn.Module]:
    """Return layers a, b, ...: pointwise convolutions of 3, then of the given numbers of channels."""
    pairs = zip((3, *channels), channels, strict=False)
    return {"abcdef"[i]: nn.Conv2d(*pair, 1) for i, pair in enumerate(pairs)} | parts


@add(
    IMAGE, {"a": 4}, lambda: convs(8, c=nn.Conv2d(8, 12, 3, groups=4, padding="same"), d=nn.Conv2d(12, 2, 1))
)
def grouped(m: Any, x: Tensor) -> Tensor:
    """Four groups of 2 channels in and 3 out: groups are cut, their channels stay together."""
    return m.d(m.c(m.a(x).relu()))


@add(IMAGE, {"a": 6}, lambda: convs(6, c=nn.Conv2d(6, 12, 3, groups=6, padding=1), d=nn.Conv2d(12, 2, 1)))
@add(
    IMAGE,
    {"a": 6},
    lambda: convs(6, c=nn.Conv2d(6, 12, 3, groups=6, padding=1), d=nn.Conv2d(12, 2, 1)),
    heads="inside",
)
def depthwise_with_multiplier(m: Any, x: Tensor) -> Tensor:
    return m.d(m.c(m.a(x).relu()))


@add(
    IMAGE,
    {"a": 4},
    lambda: convs(
        8, c=nn.ConvTranspose2d(8, 12, 2, stride=2, groups=4), d=nn.ConvTranspose2d(12, 2, 3, bias=False)
    ),
)
def transposed_grouped(m: Any, x: Tensor) -> Tensor:
    return m.d(m.c(m.a(x).relu()))


@add(
    (2, 3, 9),
    {"a": 6, "d": 4},
    lambda: {
        "a": nn.Conv1d(3, 6, 3, padding="same"),
        "c": nn.ConvTranspose1d(6, 6, 3, groups=6),
        "d": nn.Conv1d(6, 4, 3),
        "e": nn.Linear(4, 2),
    },
)
def sequences(m: Any, x: Tensor) -> Tensor:
    h = functional.max_pool1d(functional.avg_pool1d(m.c(m.a(x)), 2), 2)
    h = functional.interpolate(h, size=8, mode="linear")
    return m.e(functional.adaptive_avg_pool1d(m.d(h), 1).squeeze(-1))


@add(
    (2, 3, 4, 4, 4),
    {"a": 5, "c": 4},
    lambda: {
        "a": nn.Conv3d(3, 5, 2),
        "c": nn.ConvTranspose3d(5, 4, 2),
        "d": nn.Linear(4, 2),
    },
)
def volumes(m: Any, x: Tensor) -> Tensor:
    h = functional.interpolate(m.c(m.a(x)), scale_factor=2, mode="trilinear")
    return m.d(functional.avg_pool3d(functional.max_pool3d(h, 2), 2).mean((2, 3, 4)))


@add(IMAGE, {"a": 3, "c": 5}, lambda: convs(12, c=nn.Conv2d(3, 5, 1), d=nn.Conv2d(20, 2, 1)))
@add(IMAGE, {"a": 3, "c": 5}, lambda: convs(12, c=nn.Conv2d(3, 5, 1), d=nn.Conv2d(20, 2, 1)), heads="inside")
def pixels(m: Any, x: Tensor) -> Tensor:
    """Channels 4c to 4c+3 are the pixels of channel c and stay together."""
    return m.d(functional.pixel_unshuffle(m.c(functional.pixel_shuffle(m.a(x), 2)), 2))


@add(IMAGE, {"a": 3}, lambda: convs(12, d=nn.Conv2d(12, 2, 1)))
@add(IMAGE, {"a": 4}, lambda: convs(12, d=nn.Conv2d(12, 2, 1)), heads="inside")
def shuffled(m: Any, x: Tensor) -> Tensor:
    """Of 3 groups of 4 channels whole groups are cut, or channels of each."""
    return m.d(functional.channel_shuffle(m.a(x), 3))


@add(IMAGE, {"a": 2}, lambda: convs(8, c=nn.Conv2d(8, 8, 3, groups=2, padding=1), d=nn.Conv2d(8, 2, 1)))
def shuffled_after_groups(m: Any, x: Tensor) -> Tensor:
    """As shuffle networks do it by hand."""
    h = m.c(m.a(x))
    return m.d(h.view(h.shape[0], 2, 4, 6, 6).transpose(1, 2).reshape(h.shape[0], -1, 6, 6))


@add(IMAGE, {"a": 5}, lambda: convs(5, d=nn.Conv2d(20, 2, 1)))
def unfolded(m: Any, x: Tensor) -> Tensor:
    h = functional.unfold(m.a(x), 2, stride=2)
    return m.d(functional.fold(h, (6, 6), 2, stride=2).repeat(1, 2, 1, 1).repeat_interleave(2, dim=1))


@add(IMAGE, {"a": 5}, lambda: convs(5, d=nn.Conv2d(5, 2, 1)))
def resized(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    for mode in ("nearest", "bilinear", "bicubic", "nearest-exact"):
        h = functional.interpolate(h, size=(5, 7), mode=mode)
    h = functional.interpolate(h, scale_factor=0.8, mode="bilinear", antialias=True)
    return m.d(functional.interpolate(h, size=(6, 6), mode="bicubic", antialias=True))


@add((2, 3, 8), {"a": 5}, lambda: {"a": nn.Conv1d(3, 5, 1), "d": nn.Conv1d(5, 2, 1)})
def pooled_sequences(m: Any, x: Tensor) -> Tensor:
    h = functional.adaptive_max_pool1d(m.a(x), 4)
    h, places = functional.max_pool1d(h, 2, return_indices=True)
    h = functional.max_unpool1d(h, places, 2)
    return m.d(functional.interpolate(functional.interpolate(h, 8), 4, mode="nearest-exact"))


@add((2, 3, 4, 4, 4), {"a": 5}, lambda: {"a": nn.Conv3d(3, 5, 1), "d": nn.Conv3d(5, 2, 1)})
def pooled_volumes(m: Any, x: Tensor) -> Tensor:
    h = functional.interpolate(functional.interpolate(m.a(x), 2), 4, mode="nearest-exact")
    h, places = functional.max_pool3d(h, 2, return_indices=True)
    h = functional.max_unpool3d(h, places, 2) + functional.adaptive_max_pool3d(h, 1)
    regions = functional.fractional_max_pool3d(
        h, 1, output_ratio=0.5, _random_samples=h.new_ones(len(h), 5, 3) / 2
    )
    return m.d(functional.adaptive_avg_pool3d(h, 2) + regions)


@add(IMAGE, {"a": 5}, lambda: convs(5, d=nn.Conv2d(5, 2, 1)))
def pooled(m: Any, x: Tensor) -> Tensor:
    h, places = functional.max_pool2d(m.a(x), 2, return_indices=True)
    h = functional.max_unpool2d(h, places, 2) + functional.adaptive_max_pool2d(h, 1)
    h = h + functional.interpolate(functional.max_pool2d(h, 2), (6, 6))
    regions = functional.fractional_max_pool2d(
        h, 1, output_size=3, _random_samples=h.new_ones(len(h), 5, 2) / 2
    )
    return m.d(
        regions + functional.lp_pool2d(h.abs(), 2, 2) + functional.adaptive_avg_pool2d(h, (3, None))[..., :3]
    )


@add(IMAGE, {"a": 5}, lambda: convs(5, e=nn.Linear(3, 6), d=nn.Conv2d(5, 2, 1)))
def sampled(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    theta = m.e(x.mean((2, 3))).view(-1, 2, 3)
    grid = functional.affine_grid(theta, [h.shape[0], h.shape[1], 4, 4], align_corners=False)
    return m.d(functional.grid_sample(h, grid, align_corners=False))


@add(IMAGE, {"a": 5}, lambda: convs(5, d=nn.Conv2d(5, 2, 1)))
def padded(m: Any, x: Tensor) -> Tensor:
    h = functional.pad(m.a(x), (1, 0, 2, 1), mode="reflect")
    return m.d(functional.pad(functional.pad(h, (1, 1, 0, 0), mode="circular"), (0, -1, 1, 0), value=0.5))


@add(
    IMAGE,
    {"a": 4},
    lambda: convs(4, c=nn.Conv2d(4, 8, 1), d=nn.Conv2d(8, 2, 1)),
)
def padded_shortcut(m: Any, x: Tensor) -> Tensor:
    """Zeros beside the channels, as in a residual net without projections: these stay."""
    h = m.a(x)
    return m.d(m.c(h) + functional.pad(h[:, :, ::2, ::2].repeat(1, 1, 2, 2), (0, 0, 0, 0, 2, 2)))


@add(
    IMAGE,
    {"a": 6, "c": 4},
    lambda: convs(6, c=nn.Conv2d(6, 4, 1), e=nn.Conv2d(4, 6, 1), d=nn.Conv2d(6, 2, 1)),
)
def squeeze_and_excite(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    return m.d(h * m.e(m.c(functional.adaptive_avg_pool2d(h, 1)).relu()).sigmoid())


@add(IMAGE, {"a": 6}, lambda: convs(6, c=nn.Conv2d(2, 1, 3, padding=1), d=nn.Conv2d(6, 2, 1)), oracle="own")
def spatial_attention(m: Any, x: Tensor) -> Tensor:
    """The mean and the largest of all channels; nobody asks which one was the largest."""
    h = m.a(x)
    maps = torch.cat([h.mean(1, keepdim=True), h.max(dim=1, keepdim=True)[0]], dim=1)
    return m.d(h * m.c(maps).sigmoid())


@add(IMAGE, {}, lambda: convs(6, d=nn.Conv2d(6, 2, 1)))
def largest_channel_by_number(m: Any, x: Tensor) -> Tensor:
    """Here it is asked, so the channels stay."""
    h = m.a(x)
    value, number = h.max(dim=1, keepdim=True)
    return m.d(h) + value * number


@add(
    IMAGE,
    {"a.parametrizations.weight": 6, "d.parametrizations.weight": 4},
    lambda: {
        "a": parametrizations.weight_norm(nn.Conv2d(3, 6, 3)),
        "d": parametrizations.weight_norm(nn.Linear(6, 4)),
        "e": nn.Linear(4, 2),
    },
    oracle="own",
)
def weight_norm(m: Any, x: Tensor) -> Tensor:
    """The norm of a row is that of its kept columns."""
    return m.e(m.d(m.a(x).mean((2, 3)).tanh()).sigmoid())


@add(
    (2, 5),
    {"e": 7},
    lambda: {
        "a": parametrizations.spectral_norm(nn.Linear(5, 6)),
        "d": nn.Linear(6, 6),
        "e": nn.Linear(6, 7),
        "f": nn.Linear(7, 2),
    },
)
def spectral_norm(m: Any, x: Tensor) -> Tensor:
    """The vectors of a are of the whole matrix, which stays whole, with what its channels are added to."""
    return m.f(m.e(m.d(m.a(x)) + m.a(x)))


@add(
    IMAGE,
    {"a": 6},
    lambda: convs(6, n=nn.BatchNorm2d(6), d=nn.Conv2d(6, 2, 1)) | {"scale": torch.rand(6)},
    oracle="own",
)
def norms(m: Any, x: Tensor) -> Tensor:
    h = functional.instance_norm(m.n(m.a(x)), weight=m.scale, bias=m.scale).movedim(1, -1)
    h = functional.layer_norm(h, h.shape[3:]) + functional.rms_norm(h, h.shape[3:], m.scale)
    return m.d(functional.group_norm(h.movedim(-1, 1), 1))


@add(
    (2, 4, 5),
    {"a": 6},
    lambda: {"a": nn.Linear(5, 6), "n": nn.BatchNorm1d(4), "i": nn.InstanceNorm1d(4)},
    oracle="own",
)
def norms_over_channels(m: Any, x: Tensor) -> Tensor:
    """Axis 1 are the tokens: the statistics of a token are taken over the channels."""
    return m.i(m.n.train()(m.a(x))).square().sum((1, 2))
