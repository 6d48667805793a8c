"""Parameter counts of the paper's models.

Source: arXiv 2608.07157v1, Table 1: 3.25, 3.28 and 0.82 million parameters, uploads of 13.00, 13.10 and 3.30
MB at 4 bytes each. The exact numbers follow from the layers:

CNN, with C input channels, K classes and S the side after three poolings (4 for 32 and for 28, rounded up):
  convolutions  9*C*64 + 64, 9*64*64 + 64, 9*64*128 + 128, 9*128*128 + 128, 9*128*256 + 256, 9*256*256 + 256
  norms         2*(64 + 64 + 128 + 128 + 256 + 256) = 1,792
  linear        256*S*S*512 + 512 = 2,097,664, and 512*K + K
LSTM: 95*8 = 760; 4*256*(8 + 256) + 2*1,024 = 272,384; 4*256*(256 + 256) + 2*1,024 = 526,336;
256*95 + 95 = 24,415.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from widthwise.tasks import DATASETS, resolve_model


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
