"""MobileNetV2: inverted residuals with depthwise convolutions.

Legend: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor, nn

from widthwise.tasks.dataset import Kind, Signature
from widthwise.tasks.model import CHANNELS_PER_GROUP, Model, Norm
from widthwise.tasks.models.resnet import convolution

#: Rows of table 2: expansion t, channels c, repeats n, whether the first repeat halves the image.
TABLE_2 = (
    (1, 16, 1, False),
    (6, 24, 2, True),
    (6, 32, 3, True),
    (6, 64, 4, True),
    (6, 96, 3, False),
    (6, 160, 3, True),
    (6, 320, 1, False),
)
STEM, LAST = 32, 1280
SMALLEST_SIDE = 4


class MobileNetV2(Model):
    """MobileNetV2: 17 inverted residual blocks and a last 1x1 convolution of 1280 channels.

    Images of 224 pixels are halved five times. Smaller ones are halved only as often as leaves at least 4
    pixels a side (32 pixels: three times), from the end of the network: the early halvings are left out.

    Source: Sandler et al. 2018, table 2 and section 6.1 (2.24 M parameters for ten classes). Departs: the
    rule for small images; group normalisation by default, which has no statistics to share (the paper uses
    ``norm: batch``); dropout is left out.

    Attributes:
        norm: Normalisation after each convolution.
        scale: The paper's width multiplier: a smaller *global* model. Channels are rounded to multiples of 8,
            as in its reference implementation; below 1, the last layer keeps its 1280.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("image",)

    norm: Norm = "group"
    scale: float = Field(1.0, gt=0, allow_inf_nan=False)

    def module(self, signature: Signature) -> nn.Module:
        """Return the network for images of this size."""
        channels, *sides = signature.shape
        allowed = halvings(min(sides))
        remaining = 1 + sum(halves for *_, halves in TABLE_2)

        def stride(halves: bool) -> int:
            nonlocal remaining
            kept = halves and remaining <= allowed
            remaining -= halves
            return 2 if kept else 1

        hidden = rounded(STEM * self.scale)
        layers: list[nn.Module] = [convolution(channels, hidden, self.norm, stride=stride(True)), nn.ReLU6()]
        for expansion, count, repeats, halves in TABLE_2:
            for repeat in range(repeats):
                channels, hidden = hidden, rounded(count * self.scale)
                step = stride(halves and not repeat)
                layers.append(InvertedResidual(channels, hidden, step, expansion, self.norm))
        last = rounded(LAST * max(1.0, self.scale))
        layers += [convolution(hidden, last, self.norm, kernel=1), nn.ReLU6()]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, signature.num_classes)]
        return nn.Sequential(*layers, *head)


class InvertedResidual(nn.Module):
    """1x1 expansion, 3x3 depthwise, 1x1 linear projection; added to the input where shapes allow it."""

    def __init__(self, channels: int, hidden: int, stride: int, expansion: int, norm: Norm) -> None:
        super().__init__()
        wide = channels * expansion
        layers: list[nn.Module] = []
        if expansion > 1:
            layers += [convolution(channels, wide, norm, kernel=1), nn.ReLU6()]
        layers += [convolution(wide, wide, norm, stride=stride, groups=wide), nn.ReLU6()]
        self.layers = nn.Sequential(*layers, convolution(wide, hidden, norm, kernel=1))
        self.residual = stride == 1 and channels == hidden

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        out: Tensor = self.layers(x)
        return x + out if self.residual else out


def halvings(side: int) -> int:
    """Return how often a side (in pixels) can be halved, rounding up, so that 4 pixels are left.

    Example:
        >>> [halvings(side) for side in (224, 64, 32, 28, 8, 4)]
        [5, 4, 3, 3, 1, 0]
    """
    count = 0
    while count < 5 and -(-side // 2 ** (count + 1)) >= SMALLEST_SIDE:
        count += 1
    return count


def rounded(channels: float) -> int:
    """Return the nearest multiple of 8, at least 8, that takes away no more than a tenth.

    Example:
        >>> [rounded(24 * scale) for scale in (1.0, 0.5, 0.35)]
        [24, 16, 8]
    """
    unit = CHANNELS_PER_GROUP
    nearest = max(unit, int(channels + unit / 2) // unit * unit)
    return nearest if nearest >= 0.9 * channels else nearest + unit
