"""A control that could not spend what it was to match: marked, and in no comparison and no claim."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest
import yaml

from widthwise.report.study.claims import findings
from widthwise.report.study.inference import comparisons_table, links_table
from widthwise.report.study.provenance import headline_csv, runs_table
from widthwise.report.study.results import StudyResults, read_study
from widthwise.report.study.tables import headline_table
from widthwise.studies import Study, plan

TASK = {"dataset": "cifar10", "model": "mlp", "partition": {"kind": "iid"}}
STUDY = {
    "base": {"task": TASK, "training": {"rounds": 4}},
    "tasks": {"cifar10": {"title": "CIFAR-10", "paper": "CIFAR-10"}},
    "methods": {
        "ours": {"method": {"name": "hasfl"}},
        "random": {"method": {"name": "random-budget", "matched_to": "ours"}},
    },
    "seeds": [1, 2, 3],
    "paper": "moayedikia-2026",
}
FINAL = {"ours": (0.6, 0.5, 0.4), "random": (0.55, 0.1, 0.37)}


@pytest.fixture(scope="module")
def results(write_run, tmp_path_factory: pytest.TempPathFactory) -> StudyResults:
    """Two methods with other labels than the paper's; in seed 2 the control missed its budget."""
    root = tmp_path_factory.mktemp("budgets")
    cells = []
    for run in plan(Study(**STUDY), root):
        seed = run.config.seed
        write_run(root / "cifar10", run.label, seed=seed, rounds=4)
        (run.path / "config.yaml").write_text(yaml.safe_dump(run.config.to_dict()), encoding="utf-8")
        result = json.loads((run.path / "result.json").read_text(encoding="utf-8"))
        result["final_accuracy"] = FINAL[run.label][seed - 1]
        if run.label == "random":
            result["control"] = {"currency": "width", "met": seed != 2}
        (run.path / "result.json").write_text(json.dumps(result), encoding="utf-8")
        path = run.path.relative_to(root).as_posix()
        cells.append({"path": path, "task": "cifar10", "label": run.label, "seed": seed, "error": None})
    manifest = {"name": "x", "profile": None, "study": STUDY, "runs": cells, "sessions": []}
    (root / "study.json").write_text(json.dumps(manifest), encoding="utf-8")
    return read_study(root)


def test_comparisons_leave_out_runs_that_missed_their_budget(results):
    mean, *single = (
        record
        for record in comparisons_table(results).records
        if (record["first"], record["second"]) == ("ours", "random")
    )
    assert [record["seed"] for record in single] == [1, 3]
    assert (mean["n"], mean["pair"]) == (2, "matched control (width)")
    assert mean["value"] == pytest.approx((5 + 3) / 2)
    assert mean["runs"] == "cifar10/ours-s1 cifar10/ours-s3 cifar10/random-s1 cifar10/random-s3"


def test_claims_leave_out_runs_that_missed_their_budget_and_say_so(results):
    expected = results.expected.model_copy(
        update={"claims": [claim for claim in results.expected.claims if claim.name == "3a"]}
    )
    (found,) = findings(replace(results, expected=expected))
    assert (found.found.n, found.found.mean) == (2, pytest.approx(4.0))
    assert found.reason == "cifar10/random-s2 left out: it did not meet its budget"
    assert found.verdict == "undecided at this scale"  # 12.7 sd / sqrt(2) = 12.7 points to each side of 4


def test_tables_mark_runs_that_missed_their_budget(results):
    name = "Random-budget (budget not met: s2)"
    assert [row[1] for row in headline_table(results).rows] == ["HAS-FL", name]
    assert [row[1] for row in links_table(results).rows] == ["ours", "random (budget not met: s2)"]
    assert [row[0] for row in runs_table(results).rows if "not met" in row[0]] == [
        "cifar10/random-s2 (budget not met)"
    ]
    ours, random = csv.DictReader(headline_csv(results).splitlines())
    assert (ours["budget_not_met"], random["budget_not_met"]) == ("", "s2")
    assert all(row["runs"] for row in (ours, random))
    assert random["final_mean"] == "34.0"  # (55 + 10 + 37) / 3: it is still a run of random-budget
