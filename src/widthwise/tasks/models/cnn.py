"""The paper's convolutional network."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import nn

from widthwise.tasks.dataset import Kind, Signature
from widthwise.tasks.model import Model, Norm, norm_layer, scaled


class Cnn(Model):
    """Six 3x3 convolutions (64-64-128-128-256-256) in pairs with pooling, a hidden layer of 512, the classes.

    Source: arXiv 2608.07157v1, Table 1 (3.25 M parameters on CIFAR-10, 3.28 M on EMNIST). The paper names no
    normalisation; its parameter counts show one weight and one bias per channel. The default here is group
    normalisation, which needs no statistics to be shared. Pooling rounds up (28 -> 14 -> 7 -> 4).

    Attributes:
        norm: Normalisation after each convolution.
        scale: Factor on every hidden channel count, the 512 included: a smaller *global* model.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("image",)

    norm: Norm = "group"
    scale: float = Field(1.0, gt=0, allow_inf_nan=False)

    def module(self, signature: Signature) -> nn.Module:
        """Return the network for images of this size."""
        channels, height, width = signature.shape
        layers: list[nn.Module] = []
        for hidden in (scaled(count, self.scale) for count in (64, 128, 256)):
            for _ in range(2):
                layers += [
                    nn.Conv2d(channels, hidden, 3, padding=1),
                    norm_layer(self.norm, hidden),
                    nn.ReLU(),
                ]
                channels = hidden
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
            height, width = -(-height // 2), -(-width // 2)
        hidden = scaled(512, self.scale)
        head = [nn.Flatten(), nn.Linear(channels * height * width, hidden), nn.ReLU()]
        return nn.Sequential(*layers, *head, nn.Linear(hidden, signature.num_classes))
