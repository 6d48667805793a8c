"""Parameter counts of the paper's models, and of published ones.

Source: arXiv 2608.07157v1, Table 1: 3.25, 3.28 and 0.82 million parameters, uploads of 13.00, 13.10 and 3.30
MB at 4 bytes each. The exact numbers follow from the layers:

CNN, with C input channels, K classes and S the side after three poolings (4 for 32 and for 28, rounded up):
  convolutions  9*C*64 + 64, 9*64*64 + 64, 9*64*128 + 128, 9*128*128 + 128, 9*128*256 + 256, 9*256*256 + 256
  norms         2*(64 + 64 + 128 + 128 + 256 + 256) = 1,792
  linear        256*S*S*512 + 512 = 2,097,664, and 512*K + K
LSTM: 95*8 = 760; 4*256*(8 + 256) + 2*1,024 = 272,384; 4*256*(256 + 256) + 2*1,024 = 526,336;
256*95 + 95 = 24,415.

Published counts are computed from the layers as their papers list them; `a x b` below is a convolution or
linear layer without bias, every norm adds 2 per channel, every bias 1 per unit.

ResNet-18, 32x32 stem (11.17 M with ten classes; 11.7 M of the paper's with its 7x7 stem and 1,000 classes).
ResNet-20: 0.27 M (He et al. 2016, table 6) with shortcuts of option B: + 16*32 + 2*32 + 32*64 + 2*64 = 2,752.
MobileNetV2: 3.4 M with 1,000 classes (Sandler et al. 2018, table 4); exactly 3,504,872, of which
1,281*1,000 lie in the last layer.
ViT-B/16: 86 M with 1,000 classes (Dosovitskiy et al. 2021, table 1), exactly 86,567,656. ViT-Ti/16: 5.7 M
(Touvron et al. 2021, table 1), exactly 5,717,416. GPT-2: 124 M, exactly 124,439,808.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from widthwise.tasks import DATASETS, Signature, resolve_model


def cnn(channels: int, classes: int) -> int:
    sizes = [channels, 64, 64, 128, 128, 256, 256]
    convolutions = sum(9 * a * b + b for a, b in pairwise(sizes))
    return convolutions + 1_792 + 2_097_664 + 513 * classes


@pytest.mark.parametrize(
    ("dataset", "model", "exact", "millions", "megabytes"),
    [
        ("cifar10", "cnn", cnn(3, 10), "3.25", "13.00"),
        ("emnist", "cnn", cnn(1, 62), "3.28", "13.10"),
        ("shakespeare", "lstm", 760 + 272_384 + 526_336 + 24_415, "0.82", "3.30"),
    ],
)
def test_model_has_parameter_count_of_table_1(
    dataset: str, model: str, exact: int, millions: str, megabytes: str
) -> None:
    module = resolve_model(model, DATASETS[dataset].value.signature).build(0)
    count = sum(parameter.numel() for parameter in module.parameters())
    assert count == exact
    assert f"{count / 1e6:.2f}" == millions
    assert f"{4 * count / 1e6:.2f}" == megabytes


def count_of(model: str, signature: Signature, options: dict[str, Any]) -> int:
    with torch.device("meta"):  # nothing is allocated
        module = resolve_model(model, signature, options).build(0)
    return sum(parameter.numel() for parameter in module.parameters())


def resnet(stages: list[int], blocks: int, classes: int) -> int:
    """Stem, blocks of two 3x3 convolutions, 1x1 shortcuts between stages, classes; a norm after each."""
    stem = 9 * 3 * stages[0] + 2 * stages[0]
    body = sum(blocks * 2 * (9 * c * c + 2 * c) for c in stages)
    # The first convolution of a later stage has half as many inputs, and a shortcut beside it.
    wider = sum(-9 * b * b + 9 * a * b + a * b + 2 * b for a, b in pairwise(stages))
    return stem + body + wider + stages[-1] * classes + classes


def transformer(dim: int, depth: int) -> int:
    """Per block: four projections and two layers of 4 * dim, all with bias, and two norms; a last norm."""
    return depth * (4 * (dim * dim + dim) + 8 * dim * dim + 5 * dim + 4 * dim) + 2 * dim


def vit_16(dim: int, tokens: int = 197, classes: int = 1000) -> int:
    """Patches of 16x16x3, class token, positions, 12 blocks, classes."""
    return 16 * 16 * 3 * dim + dim + dim + tokens * dim + transformer(dim, 12) + dim * classes + classes


CIFAR = Signature("image", (3, 32, 32), 10)
IMAGENET = Signature("image", (3, 224, 224), 1000)
GPT_2 = Signature("text", (1024,), 50_257)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(
    ("model", "signature", "options", "derived", "published"),
    [
        ("resnet18", CIFAR, {}, resnet([64, 128, 256, 512], 2, 10), 11_173_962),
        ("resnet20", CIFAR, {}, resnet([16, 32, 64], 3, 10), 269_722 + 2_752),
        ("mobilenetv2", CIFAR, {}, 3_504_872 - 1_281 * 990, 2_236_682),
        ("mobilenetv2", IMAGENET, {}, 3_504_872, 3_504_872),
    ],
)
def test_convolutional_model_has_its_published_parameter_count(
    model: str, signature: Signature, options: dict[str, Any], derived: int, published: int, norm: str
) -> None:
    assert count_of(model, signature, {**options, "norm": norm}) == derived == published


@pytest.mark.parametrize(
    ("model", "signature", "options", "derived", "published"),
    [
        ("vit", IMAGENET, {"patch": 16, "dim": 768, "depth": 12, "heads": 12}, vit_16(768), 86_567_656),
        ("vit", IMAGENET, {"patch": 16, "dim": 192, "depth": 12, "heads": 3}, vit_16(192), 5_717_416),
        (
            "gpt",
            GPT_2,
            {"dim": 768, "depth": 12, "heads": 12},
            50_257 * 768 + 1024 * 768 + transformer(768, 12),
            124_439_808,
        ),
    ],
)
def test_transformer_has_its_published_parameter_count(
    model: str, signature: Signature, options: dict[str, Any], derived: int, published: int
) -> None:
    assert count_of(model, signature, options) == derived == published


@pytest.mark.parametrize(("model", "gates"), [("lstm-lm", 4), ("gru-lm", 3)])
def test_recurrent_model_has_the_parameters_of_its_gates(model: str, gates: int) -> None:
    # Embedding 95 x 64; a layer has, for each gate, input and hidden matrices and two biases; 95 class rows.
    layers = gates * 256 * (64 + 256 + 2) + gates * 256 * (256 + 256 + 2)
    expected = 95 * 64 + layers + 256 * 95 + 95
    assert count_of(model, Signature("text", (80,), 95), {}) == expected


@pytest.mark.parametrize(
    ("side", "last"), [(8, (4, 4)), (28, (4, 4)), (32, (4, 4)), (64, (4, 4)), (224, (7, 7))]
)
def test_mobilenet_leaves_at_least_four_pixels_a_side(side: int, last: tuple[int, int]) -> None:
    with torch.device("meta"):
        module = resolve_model("mobilenetv2", Signature("image", (3, side, side), 10), {}).build(0)
        assert module[:-3](torch.zeros(1, 3, side, side)).shape == (1, 1280, *last)
