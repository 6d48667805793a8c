"""The correlations on a study's page and its pooled audit go by one rule."""

from __future__ import annotations

import numpy as np
import pytest

from widthwise.audit import clients_of, pooled_table
from widthwise.audit.table import COLUMNS
from widthwise.engine.runs import load_run
from widthwise.report.study.contrasts import links

TIERS = np.resize([0.25, 0.5, 0.75, 1.0], 20)


@pytest.mark.parametrize(
    ("options", "undefined"),
    [
        ({}, set()),
        ({"widths": np.minimum(TIERS, 0.6)}, {COLUMNS[3]}),  # a width fixed by capacity, but not its line
        (
            {"capacity_link": None, "widths": np.linspace(0.1, 0.25, 20)},
            set(COLUMNS[:3]),
        ),  # ended before the first estimate
    ],
)
def test_links_of_a_run_are_those_of_its_audit(make_run, options, undefined):
    run = load_run(make_run(**options))
    found = links(run)
    table = pooled_table([clients_of(run)], permutations=9, bootstrap=9)
    assert found == {column: table[column].value for column in COLUMNS}
    assert {column for column, r in found.items() if r is None} == undefined
