from __future__ import annotations

import json
from typing import Any

from widthwise.cli_show import results_table, unmet_budgets
from widthwise.engine import load_run


def test_unmet_budgets_names_controls_that_spent_something_else(make_run: Any) -> None:
    control = {"currency": "macs", "budget": 1000.0, "spent": 800.0, "met": False}
    paths = {name: make_run(name, folder=name) for name in ("plain", "met", "unmet")}
    for name, content in {"met": {**control, "met": True}, "unmet": control}.items():
        file = paths[name] / "result.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "control": content}))
    lines = unmet_budgets([load_run(path) for path in paths.values()])
    assert lines == [
        "unmet was to spend 1000 (macs) for each client of a round, but its capacities allowed 800. "
        "It is no matched control."
    ]


def test_results_table_labels_masked_compute(make_run: Any) -> None:
    paths = {how: make_run(how, folder=how) for how in ("dense", "masked")}
    for how, path in paths.items():
        file = path / "result.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "compute": how, "macs": 5e9}))
    table = results_table([load_run(path) for path in paths.values()])
    assert list(table.columns[6].cells) == ["5", "5 (masked)"]
