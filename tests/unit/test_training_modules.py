from __future__ import annotations

import pytest
import torch
from torch import nn

from widthwise.training.modules import channels_last


@pytest.mark.parametrize(
    ("kernel", "inputs", "reordered"), [(3, 2, True), (1, 8, True), (1, 7, False), (1, 1, False)]
)
def test_channels_last_leaves_modules_with_narrow_pointwise_convolutions(
    kernel: int, inputs: int, reordered: bool
) -> None:
    # oneDNN corrupts memory there; with few enough channels every test of a narrow ResNet would crash.
    module = nn.Sequential(nn.Conv2d(3, inputs, 3), nn.Conv2d(inputs, 4, kernel, stride=2))
    changed = channels_last(module)
    assert changed[0].weight.is_contiguous(memory_format=torch.channels_last) is reordered
