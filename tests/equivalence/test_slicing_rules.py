"""Sub-models of forwards of a few lines, all rules together, equal an oracle that knows no rule."""

from __future__ import annotations

import operations_axes
import operations_images
import operations_products
import pytest
import torch
from operations import check

from widthwise.slicing.capture import Example, capture
from widthwise.slicing.rules import RULES

CASES = operations_axes.CASES | operations_images.CASES | operations_products.CASES


@pytest.mark.parametrize("name", CASES)
def test_sub_models_equal_an_oracle_that_knows_no_rule(name: str) -> None:
    check(CASES[name])


def test_rules_all_have_a_case() -> None:
    exercised = set()
    for case in CASES.values():
        programs, _ = capture(case.net(), Example(1, {"x": torch.zeros(case.shape, dtype=torch.float64)}))
        operations = (step.op.split(".") for program in programs for step in program.steps)
        exercised |= {
            kind.removesuffix("_") if space == "aten" else f"{space}.{kind}" for space, kind, *_ in operations
        }
    assert set(RULES) - exercised == set()
