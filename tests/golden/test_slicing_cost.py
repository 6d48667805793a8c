"""Table 1 of the paper to every printed digit, and counts by independent tools."""

from __future__ import annotations

import pytest
import torch
from ptflops import get_model_complexity_info
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from widthwise.core.errors import SliceError
from widthwise.slicing import WidthSpace, cost, trace

WIDTHS = (0.25, 0.5, 0.75, 1.0)


class PaperCNN(nn.Sequential):
    """Section 5 of the paper: six 3x3 convolutions, each with an affine norm, pooling that rounds up."""

    def __init__(self, inputs: int, image: int, classes: int, norm: str) -> None:
        layers: list[nn.Module] = []
        for i, channels in enumerate((64, 64, 128, 128, 256, 256)):
            layers.append(nn.Conv2d(inputs, channels, 3, padding=1))
            layers.append(
                nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(channels // 8, channels)
            )
            layers.append(nn.ReLU())
            if i % 2:
                layers.append(nn.MaxPool2d(2, ceil_mode=True))
                image = -(-image // 2)
            inputs = channels
        layers += [nn.Flatten(), nn.Linear(inputs * image * image, 512), nn.ReLU(), nn.Linear(512, classes)]
        super().__init__(*layers)


class PaperLSTM(nn.Module):
    """Section 5 of the paper: an embedding that stays whole, two LSTM layers, one linear on the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(95, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.fc = nn.Linear(256, 95)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        output, _ = self.lstm(self.embed(tokens))
        return self.fc(output[:, -1])


# The figures as they are printed: parameters and MACs in millions, upload in 10^6 bytes.
TABLE_1 = {
    "cifar10-group": ("0.21 0.82 1.83 3.25", "10.0 39.2 87.4 154.9", "0.82 3.26 7.32 13.00"),
    "cifar10-batch": ("0.21 0.82 1.83 3.25", "10.0 39.2 87.4 154.9", "0.82 3.26 7.32 13.00"),
    "emnist-group": ("0.21 0.83 1.85 3.28", "7.5 29.7 66.6 118.2", "0.85 3.31 7.40 13.10"),
    "shakespeare": ("0.06 0.22 0.47 0.82", "4.1 16.1 35.9 63.6", "0.24 0.86 1.88 3.30"),
}


def paper_model(name: str) -> tuple[nn.Module, torch.Tensor, tuple[str, ...]]:
    task, _, norm = name.partition("-")
    if task == "shakespeare":
        return PaperLSTM(), torch.zeros(2, 80, dtype=torch.long), ("embed",)
    channels, image, classes = (3, 32, 10) if task == "cifar10" else (1, 28, 62)
    return PaperCNN(channels, image, classes, norm), torch.zeros(2, channels, image, image), ()


@pytest.mark.parametrize("name", TABLE_1)
def test_cost_gives_every_printed_figure_of_table_1(name: str) -> None:
    model, example, freeze = paper_model(name)
    costs = cost(model, example, WIDTHS, freeze)
    params, macs, upload = TABLE_1[name]
    assert [f"{c.params / 1e6:.2f}" for c in costs] == params.split()
    assert [f"{c.macs / 1e6:.1f}" for c in costs] == macs.split()
    assert [f"{c.upload_bytes / 1e6:.2f}" for c in costs] == upload.split()
    assert [c.width for c in costs] == list(WIDTHS)
    assert costs[-1].params == sum(p.numel() for p in model.parameters())


@pytest.fixture(scope="module")
def cnn() -> tuple[nn.Module, torch.Tensor, WidthSpace]:
    model, example, _ = paper_model("emnist-group")
    return model, example, trace(model, example)


def test_macs_of_the_full_cnn_are_the_sum_over_its_layers(
    cnn: tuple[nn.Module, torch.Tensor, WidthSpace],
) -> None:
    # 9 * in * out for each of the 28^2, 14^2 and 7^2 positions; the last pooling rounds 7 up to 4.
    convolutions = 9 * (
        (1 * 64 + 64 * 64) * 28**2 + (64 * 128 + 128 * 128) * 14**2 + (128 * 256 + 256 * 256) * 7**2
    )
    assert cnn[2].macs(cnn[2].full()) == convolutions + 256 * 4**2 * 512 + 512 * 62


@pytest.mark.parametrize("width", [0.13, 0.5, 1.0])
def test_macs_agree_with_the_flop_counter_of_torch(
    cnn: tuple[nn.Module, torch.Tensor, WidthSpace], width: float
) -> None:
    model, example, space = cnn
    spec = space.nested(width)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        space.extract(model, spec)(example[:1])
    assert 2 * space.macs(spec) == counter.get_total_flops()  # it counts 2 operations for each MAC


def test_macs_agree_with_ptflops_without_its_elementwise_terms(
    cnn: tuple[nn.Module, torch.Tensor, WidthSpace],
) -> None:
    model, _, space = cnn
    elementwise = [nn.GroupNorm, nn.ReLU, nn.MaxPool2d]
    macs, params = get_model_complexity_info(
        model, (1, 28, 28), as_strings=False, print_per_layer_stat=False, ignore_modules=elementwise
    )
    # It still counts one operation for each output of a bias and of a ReLU and each input of a pooling.
    outputs = 2 * (64 * 28**2 + 128 * 14**2 + 256 * 7**2) + 512
    pooled = 64 * 28**2 + 128 * 14**2 + 256 * 7**2
    assert macs - space.macs(space.full()) == (outputs + 62) + outputs + pooled
    assert params == space.num_params(space.full())


def test_cost_refuses_a_width_of_zero() -> None:
    with pytest.raises(SliceError, match=r"width is 0, but a width is in \(0, 1\]. Choose one such as 0.5."):
        cost(nn.Linear(3, 2), torch.zeros(2, 3), [0])
