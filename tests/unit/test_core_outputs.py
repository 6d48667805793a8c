from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from widthwise.core.errors import InputError
from widthwise.core.outputs import logits_of

SCORES = torch.arange(20.0).view(2, 10)


@dataclass
class Output:
    logits: Tensor
    hidden: Tensor | None = None


@pytest.mark.parametrize(
    "output",
    [
        SCORES,
        {"loss": None, "logits": SCORES},
        Output(SCORES),
        (SCORES, torch.zeros(3)),
        [SCORES],
    ],
    ids=["tensor", "mapping", "attribute", "tuple", "list"],
)
def test_logits_of_finds_the_scores(output: Any) -> None:
    assert logits_of(output) is SCORES


def test_logits_of_takes_the_last_position_of_a_text() -> None:
    scores = torch.arange(24.0).view(2, 3, 4)
    assert torch.equal(logits_of(Output(scores)), scores[:, 2])


@pytest.mark.parametrize("output", [None, {"loss": SCORES}, (), (None, SCORES), "logits"])
def test_logits_of_refuses_outputs_without_scores(output: Any) -> None:
    with pytest.raises(InputError, match=rf"output is of type {type(output).__name__}, but no class scores"):
        logits_of(output)
