"""Convolutional nets written here after well-known ones, each for one way in which channels are wired."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .architecture import CLASSES, Zoo, image

ZOO = Zoo("nets written out in torch")


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return convolution, batch norm and ReLU."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


class Classifier(nn.Module):
    """Global pooling and class scores."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scores = nn.Linear(channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x.mean((2, 3)))


@ZOO.net(image())
class VGG(nn.Sequential):
    """Simonyan and Zisserman 2015: flattened images meet a linear layer."""

    def __init__(self) -> None:
        blocks = [conv(3, 16), conv(16, 16), nn.MaxPool2d(2), conv(16, 32), conv(32, 32), nn.MaxPool2d(2)]
        top = [nn.Flatten(), nn.Linear(32 * 64, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, CLASSES)]
        super().__init__(*blocks, *top)


@ZOO.net(image())
class PreActResNet(nn.Module):
    """He et al. 2016 (identity mappings): norms and activations before convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(4))
        self.convs = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(4))
        self.top = Classifier(16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for i in (0, 2):
            y = x
            for norm, layer in zip(self.norms[i : i + 2], self.convs[i : i + 2], strict=True):
                y = layer(norm(y).relu())
            x = x + y
        return self.top(x)


@ZOO.net(image())
class ResNeXt(nn.Module):
    """Xie et al. 2017: grouped convolutions inside residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 32)
        self.body = nn.Sequential(conv(32, 16, 1), conv(16, 16, groups=4), conv(16, 32, 1))
        self.top = Classifier(32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.top(x + self.body(x))


@ZOO.net(image())
class DenseNet(nn.Module):
    """Huang et al. 2017: each layer reads the concatenation of all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 16)
        self.layers = nn.ModuleList(conv(16 + 8 * i, 8) for i in range(3))
        self.transition = conv(40, 20, 1)
        self.top = Classifier(20)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.top(F.avg_pool2d(self.transition(x), 2))


@ZOO.net(image())
class Inception(nn.Module):
    """Szegedy et al. 2015: parallel branches, concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 16)
        self.branches = nn.ModuleList(
            [
                conv(16, 8, 1),
                nn.Sequential(conv(16, 8, 1), conv(8, 12)),
                nn.Sequential(conv(16, 4, 1), conv(4, 8, 5)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(16, 8, 1)),
            ]
        )
        self.mix = conv(36, 32)
        self.top = Classifier(32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.top(self.mix(torch.cat([branch(x) for branch in self.branches], 1)))


@ZOO.net(image())
class SqueezeExcite(nn.Module):
    """Hu et al. 2018: channels are scaled by a function of their means."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 32)
        self.squeeze, self.excite = nn.Linear(32, 8), nn.Linear(8, 32)
        self.top = Classifier(32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        scale = self.excite(self.squeeze(x.mean((2, 3))).relu()).sigmoid()
        return self.top(x * scale[:, :, None, None])


@ZOO.net(image())
class ShuffleNet(nn.Module):
    """Zhang et al. 2018: grouped convolutions with channels shuffled between them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 32)
        self.first, self.second = conv(32, 32, 1, groups=4), conv(32, 32, 1, groups=4)
        self.top = Classifier(32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.stem(x))
        batch, channels, height, width = x.shape
        x = x.view(batch, 4, channels // 4, height, width).transpose(1, 2).reshape(x.shape)
        return self.top(self.second(x))


@ZOO.net(image())
class ShuffleNetV2(nn.Module):
    """Ma et al. 2018: one half of the channels passes by, then the halves are interleaved."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 32)
        self.blocks = nn.ModuleList(nn.Sequential(conv(16, 16, 1), conv(16, 16, groups=16)) for _ in range(2))
        self.top = Classifier(32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            left, right = x.chunk(2, 1)
            x = torch.cat([left, block(right)], 1)
            batch, channels, height, width = x.shape
            x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(x.shape)
        return self.top(x)


@ZOO.net(image())
class GhostNet(nn.Module):
    """Han et al. 2020: cheap channels are made of others and put beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.primary = conv(3, 16), conv(16, 12, 1)
        self.cheap = conv(12, 12, groups=12)
        self.top = Classifier(16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.primary(self.stem(x))
        return self.top(torch.cat([x, self.cheap(x)], 1)[:, :16])


@ZOO.net(image())
class Res2Net(nn.Module):
    """Gao et al. 2019: a split of the channels, each part reading the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 32)
        self.parts = nn.ModuleList(conv(8, 8) for _ in range(3))
        self.top = Classifier(32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        first, *others = torch.split(x, 8, 1)
        found = [first]
        for layer, part in zip(self.parts, others, strict=True):
            found.append(layer(part + found[-1]))
        return self.top(x + torch.cat(found, 1))


@ZOO.net(image())
class SelectiveKernel(nn.Module):
    """Li et al. 2019: branches are weighted by a softmax over them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.small, self.large = conv(3, 16), conv(16, 16), conv(16, 16, 5)
        self.squeeze, self.weigh = nn.Linear(16, 8), nn.Linear(8, 32)
        self.top = Classifier(16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        both = torch.stack([self.small(x), self.large(x)], 1)
        weights = self.weigh(self.squeeze(both.sum(1).mean((2, 3))).relu()).view(-1, 2, 16).softmax(1)
        return self.top((both * weights[..., None, None]).sum(1))


@ZOO.net(image())
class EfficientChannelAttention(nn.Module):
    """Wang et al. 2020: a convolution that runs along the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 16)
        self.along = nn.Conv1d(1, 1, 3, padding=1)
        self.top = Classifier(16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        scale = self.along(x.mean((2, 3))[:, None]).sigmoid()[:, 0]
        return self.top(x * scale[:, :, None, None])


@ZOO.net(image())
class UNet(nn.Module):
    """Ronneberger et al. 2015: skip connections, transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([conv(3, 8), conv(8, 16)])
        self.middle = conv(16, 32)
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.merge = nn.ModuleList([conv(32, 16), conv(16, 8)])
        self.top = nn.Conv2d(8, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, block in zip(self.up, self.merge, strict=True):
            x = block(torch.cat([up(x), skips.pop()], 1))
        return self.top(x)


@ZOO.net(image())
class FeaturePyramid(nn.Module):
    """Lin et al. 2017: several outputs, from sums of scaled images."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = conv(3, 16, stride=2), conv(16, 32, stride=2)
        self.lateral = nn.ModuleList([nn.Conv2d(16, 24, 1), nn.Conv2d(32, 24, 1)])
        self.top = nn.Conv2d(24, CLASSES, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        fine = self.first(x)
        coarse = self.lateral[1](self.second(fine))
        fine = self.lateral[0](fine) + F.interpolate(coarse, scale_factor=2, mode="nearest")
        return self.top(fine), self.top(coarse)


@ZOO.net(image(16))
class SuperResolution(nn.Module):
    """Shi et al. 2016 and Lim et al. 2017: residual blocks, then pixels made of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 16, 3, padding=1))
        self.up = nn.Conv2d(16, 64, 3, padding=1)
        self.top = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.top(F.pixel_shuffle(self.up(x + 0.1 * self.body(x)), 2))
