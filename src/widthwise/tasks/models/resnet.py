"""Residual networks for small images.

Legend: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field
from torch import Tensor, nn

from widthwise.tasks.dataset import Kind, Signature
from widthwise.tasks.model import Model, Norm, norm_layer, scaled


class ResidualModel(Model):
    """A 3x3 stem and stages of residual blocks; every stage but the first halves the image.

    Attributes:
        norm: Normalisation after each convolution.
        scale: Factor on every channel count: a smaller *global* model.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("image",)
    channels: ClassVar[tuple[int, ...]]
    blocks: ClassVar[int]  # in each stage

    norm: Norm = "group"
    scale: float = Field(1.0, gt=0, allow_inf_nan=False)

    def module(self, signature: Signature) -> nn.Module:
        """Return the network for images of this number of channels."""
        stages = [scaled(count, self.scale) for count in self.channels]
        return ResNet(signature.shape[0], stages, self.blocks, signature.num_classes, self.norm)


class ResNet18(ResidualModel):
    """ResNet-18 as it is used on images of 32x32: stages 64-128-256-512 of two blocks.

    Source: He et al. 2016 (Deep residual learning), table 1. Departs: as is usual for small images, the stem
    is one 3x3 convolution of stride 1 without pooling (11.17 M parameters for ten classes). The default is
    group normalisation, which has no statistics to share; the paper uses ``norm: batch``.
    """

    channels: ClassVar[tuple[int, ...]] = (64, 128, 256, 512)
    blocks: ClassVar[int] = 2


class ResNet20(ResidualModel):
    """ResNet-20 for CIFAR-10: stages 16-32-64 of three blocks, 0.27 M parameters.

    Source: He et al. 2016, section 4.2 with n = 3. Departs: where the channels double, the shortcut is a 1x1
    convolution (option B, 2,752 parameters more) and not a padding with zeros (option A), of which a slice
    would keep zeros instead of channels. The default is group normalisation; the paper uses ``norm: batch``.
    """

    channels: ClassVar[tuple[int, ...]] = (16, 32, 64)
    blocks: ClassVar[int] = 3


class ResNet(nn.Module):
    """Images [B, C, H, W] -> logits [B, classes]."""

    def __init__(
        self, channels: int, stages: Sequence[int], blocks: int, num_classes: int, norm: Norm
    ) -> None:
        super().__init__()
        self.stem = convolution(channels, stages[0], norm)
        body: list[nn.Module] = []
        channels = stages[0]
        for stage, hidden in enumerate(stages):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                body.append(BasicBlock(channels, hidden, stride, norm))
                channels = hidden
        self.body = nn.Sequential(*body)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        features = self.body(self.stem(images).relu())
        logits: Tensor = self.head(self.pool(features).flatten(1))
        return logits


class BasicBlock(nn.Module):
    """relu(F(x) + shortcut(x)), where F is two 3x3 convolutions (He et al. 2016, eqs. 1 and 2)."""

    def __init__(self, channels: int, hidden: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.first = convolution(channels, hidden, norm, stride=stride)
        self.second = convolution(hidden, hidden, norm)
        same = stride == 1 and channels == hidden
        self.shortcut = (
            nn.Identity() if same else convolution(channels, hidden, norm, kernel=1, stride=stride)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        out: Tensor = self.second(self.first(x).relu()) + self.shortcut(x)
        return out.relu()


def convolution(
    channels: int, hidden: int, norm: Norm, kernel: int = 3, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Return a convolution that keeps the image's size but for its stride, and its normalisation layer.

    The convolution has a bias only where no normalisation follows, which has one of its own.
    """
    bias = norm == "none"
    layer = nn.Conv2d(channels, hidden, kernel, stride, kernel // 2, groups=groups, bias=bias)
    return nn.Sequential(layer, norm_layer(norm, hidden))
