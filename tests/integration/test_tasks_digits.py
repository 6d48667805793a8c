"""The demo's data set and model together learn, without any federation."""

from __future__ import annotations

import torch
from torch import nn

from widthwise.core.seeds import SeedTree
from widthwise.tasks import DATASETS, Request, resolve_model


def test_cnn_small_learns_digits_beyond_95_percent() -> None:
    source = DATASETS["digits"].value
    splits = source.load(Request(SeedTree(42)))
    module = resolve_model("cnn-small", source.signature).build(42)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(0)
    for epoch in range(7):
        optimizer.param_groups[0]["lr"] = 0.05 * 0.7**epoch
        for rows in torch.randperm(len(splits.train), generator=generator).split(32):
            inputs, targets = splits.train.batch(rows)
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs), targets).backward()
            optimizer.step()
    inputs, targets = splits.test.batch(torch.arange(len(splits.test)))
    assert (module(inputs).argmax(1) == targets).float().mean() > 0.95
