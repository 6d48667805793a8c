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
from widthwise.slicing.rules.base import find

CASES = operations_axes.CASES | operations_images.CASES | operations_products.CASES

#: Operations that only other operations of torch or in-place code call: forms of one that has a case.
_FORMS = {
    "concatenate": "cat",
}


@pytest.mark.parametrize("name", CASES)
def test_sub_models_equal_an_oracle_that_knows_no_rule(name: str) -> None:
    check(CASES[name])


def test_rules_all_have_a_case() -> None:
    exercised = set()
    for case in CASES.values():
        example = Example(1, {"x": torch.zeros(case.shape, dtype=torch.float64)})
        programs, _ = capture(case.net(), example)
        exercised |= {
            id(find(step.op.replace(".", "::", 1).partition(".")[0]))
            for program in programs
            for step in program.steps
            if step.op.startswith("aten.")
        }
    missing = [name for name, rule in RULES.items() if id(rule) not in exercised]
    assert missing == []
