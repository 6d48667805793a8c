"""The pooled audit of a study: which interval stands first, and what each figure rests on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from widthwise.audit import clients_of, pooled_table
from widthwise.audit.table import CAPACITY, COLUMNS, DATA
from widthwise.engine.runs import load_run
from widthwise.report.study.contrasts import LINK_WORDS
from widthwise.report.study.pooled_audit import pooled_audit_table


def _results(*runs) -> SimpleNamespace:
    cells = [SimpleNamespace(done=True, unmet=False, run=run, path=run.path.name) for run in runs]
    task = SimpleNamespace(title="Digits", label="digits", methods=["hasfl"])
    return SimpleNamespace(tasks=[task], of=lambda task, label: cells)


@pytest.fixture(scope="module")
def runs(write_run, tmp_path_factory):
    root = tmp_path_factory.mktemp("pooled")
    return [load_run(write_run(root, seed=seed)) for seed in (1, 2, 3)]


def test_pooled_audit_table_puts_the_interval_over_seeds_first(runs):
    found = pooled_audit_table(_results(*runs))
    expected = pooled_table([clients_of(run) for run in runs])
    row = dict(zip(found.head, found.rows[0], strict=True))
    text = row[LINK_WORDS[CAPACITY]]
    assert 0 < text.index(" t over 3 runs [") < text.index(" bootstrap [")
    assert row["detectable r"] == f"{expected[DATA].detectable_r:.2f}"
    records = {record["quantity"]: record for record in found.records if record["kind"] == "pearson"}
    for column in COLUMNS:
        cell, record = expected[column], records[LINK_WORDS[column]]
        assert (record["low"], record["high"]) == cell.run_interval
        assert (record["bootstrap_low"], record["bootstrap_high"]) == cell.interval
        assert (record["n"], record["clients"], record["left_out"]) == (3, 60, None)
        assert record["detectable_r"] == cell.detectable_r


def test_pooled_audit_table_says_what_a_figure_rests_on_where_a_run_has_one_capacity(
    runs, write_run, tmp_path
):
    level = load_run(write_run(tmp_path, seed=4))
    level.partition["capacities"] = [0.5] * 20
    found = pooled_audit_table(_results(*runs[:2], level))
    row = dict(zip(found.head, found.rows[0], strict=True))
    assert row["seeds"] == "3"
    assert "t over 2 of 3 runs [" in row[LINK_WORDS[CAPACITY]]
    records = {record["quantity"]: record for record in found.records if record["kind"] == "spearman"}
    record = records[LINK_WORDS[CAPACITY]]
    assert (record["n"], record["clients"]) == (2, 40)
    assert record["left_out"] == "the capacity is the same for every client"
    assert records[LINK_WORDS[DATA]]["n"] == 3
