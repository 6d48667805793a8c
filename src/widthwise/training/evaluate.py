"""Accuracy and loss of a module on samples."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from widthwise.core.outputs import logits_of
from widthwise.core.protocols import Criterion, Samples
from widthwise.training.loop import autocast


class Evaluation(NamedTuple):
    """Share of samples whose largest output is their target, in [0, 1], and mean loss in nats."""

    accuracy: float
    loss: float


@torch.no_grad()
def evaluate(
    module: nn.Module,
    dataset: Samples,
    batch_size: int = 1024,
    precision: str = "fp32",
    criterion: Criterion = cross_entropy,
) -> Evaluation:
    """Return accuracy and mean loss over all samples, in evaluation mode (the module's mode is restored).

    Args:
        module: Classifier, inputs [B, ...] -> class scores, wherever ``logits_of`` finds them.
        dataset: At least one sample, on the module's device.
        batch_size: Samples per forward pass; changes speed and rounding only.
        precision: "fp32" or "bf16" (forward pass under autocast).
        criterion: Mean loss of a batch.
    """
    was_training = module.training
    device = next(module.parameters()).device
    correct = torch.zeros((), dtype=torch.int64, device=device)
    total = torch.zeros((), dtype=torch.float64, device=device)
    module.eval()
    for batch in torch.split(torch.arange(len(dataset), device=device), batch_size):
        inputs, targets = dataset.batch(batch)
        with autocast(precision, device):
            outputs = logits_of(module(inputs))
            loss = criterion(outputs, targets)
        correct += (outputs.argmax(dim=1) == targets).sum()
        total += loss.double() * len(batch)
    module.train(was_training)
    return Evaluation(int(correct) / len(dataset), float(total) / len(dataset))
