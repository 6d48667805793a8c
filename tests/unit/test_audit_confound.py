from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from widthwise.audit import audit, clients_of, group_runs
from widthwise.audit.table import COLUMNS, DATA, AuditTable, Correlation, Correlations
from widthwise.audit.verdict import sentence, sentence_over_runs
from widthwise.core.errors import CheckpointError, InputError
from widthwise.engine.runs import load_run
from widthwise.report import build_report

TWENTY = (7, 7, 3, 3)  # 0.63 can be detected inside tiers, 0.58 over all clients
FAST = {"permutations": 499, "bootstrap": 200}


def _table(
    capacity: tuple | None,
    data: tuple | None,
    marginal: tuple | None = (0.1, 0.7),
    *,
    ranked: tuple | None = (),
    tier_sizes: tuple = TWENTY,
    runs: int = 1,
) -> AuditTable:
    overall = ((sum(tier_sizes),),) * runs

    def cell(numbers: tuple | None, strata: tuple) -> Correlation:
        if numbers is None:
            return Correlation(None, reason="it is the same for every client", left_out=("it is",) * runs)
        value, p = numbers
        interval = (value - 0.1, value + 0.1)
        over = (value - 0.2, value + 0.2) if runs > 1 else None
        reason = None if p else "nothing to permute"
        return Correlation(value, p, over, interval, reason=reason, tested=value, strata=strata)

    def block(data: tuple | None) -> Correlations:
        cells = (cell(marginal, overall), cell(capacity, overall))
        cells += (cell(data, (tier_sizes,) * runs), cell((0.0, 0.9), (tier_sizes,) * runs))
        return Correlations(dict(zip(COLUMNS, cells, strict=True)), ())

    spearman = block(data if ranked == () else ranked)
    return AuditTable((sum(tier_sizes),) * runs, block(data), spearman)


def test_audit_finds_the_confound_of_a_run_whose_estimate_is_capacity(make_run):
    run = audit(make_run(capacity_link=-1.0, noise=0.15), **FAST).runs[0]
    assert run.table["r_estimate_capacity"].value < -0.5
    assert run.table["r_estimate_capacity"].p_value <= 0.01
    assert run.table["r_estimate_divergence_given_capacity"].p_value > 0.05
    assert run.sentence.startswith("In this run the update divergence tracks capacity (r = -0.")
    assert "do not read it as data heterogeneity. A link weaker than r = 0.64 with label" in run.sentence
    assert run.table.power.smallest_detectable_r == pytest.approx(0.64, abs=0.02)


def test_audit_finds_a_planted_data_signal(make_run):
    run = audit(make_run(capacity_link=-1.0, data_link=3.0, noise=0.1), **FAST).runs[0]
    assert run.table["r_estimate_divergence_given_capacity"].value > 0.8
    assert run.table["r_estimate_divergence_given_capacity"].p_value <= 0.01
    assert "rises with label divergence once capacity is held fixed" in run.sentence


def test_audit_json_has_the_contract_keys_and_no_nan_when_nothing_was_measured(make_run):
    path = make_run(
        "gamma-zero", capacity_link=None, widths=np.minimum(np.resize([0.25, 0.5, 0.75, 1.0], 20), 0.4)
    )
    report = audit(path, **FAST)
    found = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert set(found) == {"runs", "pooled", "summary", "sentence"}
    assert found["pooled"] == {}
    run = found["runs"][0]
    assert {"run", "seed", *COLUMNS, "p_values", "intervals", "within_tier"} <= set(run)
    assert {*COLUMNS, "p_values", "intervals", "within_tier"} <= set(run["spearman"])
    assert set(run["power"]) == {
        "alpha",
        "power",
        "smallest_detectable_r",
        "smallest_detectable_r_all_clients",
    }
    assert (run["run"], run["seed"]) == ("gamma-zero", 42)
    assert [run[column] for column in COLUMNS] == [None] * 4
    assert run["reasons"]["r_estimate_capacity"] == "the estimate was not measured"
    width_reason = run["reasons"]["r_width_divergence_given_capacity"]
    assert width_reason == "the width is the same for all clients of equal capacity"
    assert found["summary"]["gamma-zero"]["r_estimate_capacity"] == {
        "count": 0,
        "mean": None,
        "sd": None,
        "min": None,
        "max": None,
    }
    assert found["sentence"].startswith("Nothing can be said of the update divergence in this run")


def test_audit_and_report_take_a_run_that_ended_before_its_first_estimate(make_run):
    path = make_run()
    result = json.loads((path / "result.json").read_text())
    (path / "result.json").write_text(json.dumps(result | {"estimates": None}))
    run = audit(path, **FAST).runs[0]
    assert run.table["r_estimate_capacity"].reason == "the estimate was not measured"
    assert {tier.reason for tier in run.table.within_tier} == {"the estimate was not measured"}
    assert run.sentence == (
        "Nothing can be said of the update divergence in this run: the estimate was not measured."
    )
    json.dumps(run.to_json(), allow_nan=False)
    assert "the estimate was not measured" in build_report([path], path / "report.html").read_text()


def test_audit_summarises_over_seeds_and_keeps_experiments_apart(make_run):
    paths = [make_run("hasfl", seed=s) for s in (42, 43, 44)] + [make_run("heterofl", seed=42)]
    report = audit(paths, **FAST)
    values = [run.table["r_estimate_capacity"].value for run in report.runs[:3]]
    spread = report.summary["hasfl"]["r_estimate_capacity"]
    assert (spread.count, spread.min, spread.max) == (3, min(values), max(values))
    assert spread.mean == pytest.approx(np.mean(values))
    assert spread.sd == pytest.approx(np.std(values, ddof=1))
    assert report.summary["heterofl"]["r_estimate_capacity"].sd is None
    assert report.sentence.startswith(
        "The update divergence is linked with capacity in 4 of 4 runs (mean r = -0.9"
    )


def test_audit_pools_the_runs_of_an_experiment(make_run):
    paths = [make_run("hasfl", seed=s) for s in (42, 43, 44)]
    report = audit(paths, **FAST)
    pooled = report.to_json()["pooled"]["hasfl"]
    assert (pooled["runs"], pooled["seeds"], pooled["clients"]) == (3, [42, 43, 44], 60)
    for column in COLUMNS:
        assert pooled[column] == pytest.approx(report.summary["hasfl"][column].mean)
    low, high = pooled["run_intervals"]["r_estimate_capacity"]
    assert low < pooled["r_estimate_capacity"] < high
    assert pooled["power"]["smallest_detectable_r"] < report.runs[0].table.power.smallest_detectable_r - 0.15
    assert report.sentence == pooled["sentence"]
    assert report.sentence.startswith(
        "Over these 3 runs the update divergence tracks capacity (mean r = -0.9"
    )
    json.dumps(report.to_json(), allow_nan=False)


def test_audit_takes_results_and_paths_alike(make_run):
    path = make_run()
    assert audit(load_run(path), **FAST) == audit([str(path)], **FAST)


def test_run_audit_has_a_name_for_seeds_and_for_other_keys(make_run):
    run = audit(make_run(), **FAST).runs[0]
    assert run.name == "hasfl s42"
    assert replace(run, seed="a b").name == "hasfl a b"
    assert replace(run, seed=None).name == "hasfl"


def test_audit_says_that_capacity_cannot_confound_a_run_of_one_width(make_run):
    path = make_run("fedavg")
    run = load_run(path)
    run.clients["width"] = 1.0
    found = audit(run, **FAST)
    assert found.sentence.startswith(
        "Capacity cannot confound this run (every client trained the same width)"
    )


def test_audit_refuses_an_unfinished_run_and_no_run(make_run):
    with pytest.raises(
        CheckpointError, match=r"is unfinished, but an audit needs its final estimates\. Resume"
    ):
        audit(make_run(finished=False))
    with pytest.raises(InputError, match="the list of runs is empty, but an audit needs at least one"):
        audit([])


@pytest.mark.parametrize("count", [0, -1])
def test_audit_refuses_no_resamples(make_run, count):
    with pytest.raises(InputError, match=f"permutations is {count} and bootstrap is 5, but both must be"):
        audit(make_run(), permutations=count, bootstrap=5)


def test_audit_prints_a_table_the_method_and_the_sentence(make_run):
    out = io.StringIO()
    paths = [make_run(seed=42), make_run(seed=43, capacity_link=None), make_run("heterofl")]
    report = audit(paths, **FAST)
    Console(file=out, width=160).print(report)
    text = out.getvalue()
    assert "r(H, TV | capacity)" in text
    assert "hasfl s42" in text
    assert "mean of hasfl" in text
    assert "in 1 of 2 runs" in text  # the second was never measured
    assert "t over 2" not in text
    assert "by ranks (Spearman)" in text
    assert "finds in 80% of cases" in text
    assert f"hasfl: {report.pooled['hasfl'].sentence}"[:60] in text
    assert "mean of heterofl" not in text  # one run has no spread
    assert "(the estimate was not" in text
    assert "permutation test" in text
    assert report.sentence.split(":")[0][:60] in text


@pytest.mark.parametrize(
    ("capacity", "data", "expected"),
    [
        (
            (-0.71, 0.002),
            (-0.12, 0.61),
            "In this run the update divergence tracks capacity (r = -0.71, p = 0.002, 95 % interval -0.81 "
            "to -0.61) and no link with label divergence was found once capacity is held fixed (r = -0.12, "
            "p = 0.61, 95 % interval -0.22 to -0.02): do not read it as data heterogeneity. A link weaker "
            "than r = 0.63 with label divergence at fixed capacity would have been missed more often than "
            "one time in five.",
        ),
        ((-0.7, 0.0001), (0.6, 0.01), "compare clients only within a capacity tier."),
        ((-0.1, 0.6), (0.6, 0.01), "it carries a data signal."),
        ((-0.7, 0.01), (-0.6, 0.01), "the wrong sign for a measure of data heterogeneity"),
        ((-0.1, 0.6), (0.1, 0.5), "undecided at 20 clients."),
        (
            None,
            (0.1, 0.5),
            "A capacity confound cannot be tested in this run (it is the same for every client)",
        ),
        ((-0.7, 0.01), None, "at fixed capacity stays open (it is the same for every client)."),
        ((-0.7, 0.01), (0.2, None), "stays open (r = 0.20, 95 % interval 0.10 to 0.30; nothing to permute)."),
    ],
)
def test_sentence_follows_from_the_numbers(capacity, data, expected):
    assert expected in sentence(_table(capacity, data), subject="update divergence")


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (_table((-0.7, 0.01), (0.6, 0.01)), None),
        (
            _table((-0.7, 0.01), (0.1, 0.5)),
            "A link weaker than r = 0.63 with label divergence at fixed capacity",
        ),
        (
            _table((-0.1, 0.8), (0.1, 0.5)),
            "A link weaker than r = 0.58 with capacity, or than r = 0.63 with label divergence at fixed "
            "capacity, would have been missed more often than one time in five.",
        ),
        (
            _table(None, (0.1, 0.5)),
            "A link weaker than r = 0.58 with label divergence would have been missed",
        ),
        (
            _table((-0.7, 0.01), (0.1, 0.5), tier_sizes=(2, 2, 2, 2)),
            "not even a perfect link with label divergence at fixed capacity could have been found.",
        ),
        (
            _table((-0.1, 0.5), (0.2, None)),
            "A link weaker than r = 0.58 with capacity would have been missed",
        ),
    ],
)
def test_sentence_says_which_links_could_not_have_been_seen(table, expected):
    text = sentence(table)
    assert "no link with" not in text or "was found" in text
    if expected is None:
        assert "missed" not in text
    else:
        assert expected in text


def test_sentence_says_when_ranks_find_what_numbers_do_not():
    text = sentence(_table((-0.7, 0.01), (0.3, 0.2), ranked=(0.5, 0.02)))
    assert text.endswith(
        "By ranks (Spearman) that link is found (r = 0.50, p = 0.02, 95 % interval 0.40 to 0.60)."
    )
    text = sentence(_table((-0.7, 0.01), (0.5, 0.02), ranked=(0.3, 0.2)))
    assert "By ranks (Spearman) that link is not found (r = 0.30, p = 0.2" in text


def test_sentence_takes_the_sign_of_the_tested_correlation():
    # Capacity acts by a curve: the straight line leaves +0.3, but inside tiers the link is negative.
    table = _table((-0.7, 0.01), (0.3, 0.01))
    cells = dict(table.cells)
    cells[DATA] = replace(cells[DATA], tested=-0.6)
    bent = replace(table, pearson=Correlations(cells, ()))
    assert "falls with label divergence once capacity is held fixed" in sentence(bent)


def test_sentence_over_pooled_runs_speaks_of_them_together():
    text = sentence(_table((-0.7, 0.01), (0.1, 0.5), runs=3))
    assert text.startswith(
        "Over these 3 runs the statistic tracks capacity (mean r = -0.70, p = 0.01, 95 % interval over 3 "
        "runs -0.90 to -0.50)"
    )
    nothing = sentence(_table(None, None, None, runs=3))
    assert nothing.startswith("Nothing can be said of the statistic in these 3 runs")


def test_sentence_prints_a_small_p_value_as_a_bound():
    assert "p < 0.001" in sentence(_table((-0.9, 0.0001), (0.0, 1.0)))


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([_table((-0.7, 0.01), (0.1, 0.5))] * 3, "capacity in 3 of 3 runs (mean r = -0.70)"),
        ([_table((-0.7, 0.01), (0.1, 0.5))], "do not read it as data heterogeneity"),
        ([_table((-0.7, 0.01), (0.6, 0.01))], "compare clients only within a capacity tier"),
        ([_table((-0.7, 0.01), (-0.6, 0.01))], "that link has the wrong sign"),
        (
            [_table((-0.7, 0.01), (s, 0.01)) for s in (-0.6, 0.6)],
            "the sign of that link differs between runs",
        ),
        ([_table((-0.1, 0.8), (0.1, 0.5))], "undecided with this many clients"),
        ([_table((-0.1, 0.8), (0.1, 0.5), None)] * 2, "There is nothing to audit over these 2 runs"),
    ],
)
def test_sentence_over_runs_follows_from_the_numbers(tables, expected):
    assert expected in sentence_over_runs(tables, [False] * len(tables))


def test_sentence_over_runs_counts_a_link_only_beyond_chance():
    # One of three runs: P(at least one | no link) = 1 - 0.95^3 = 0.14; two of three: 0.007.
    none, some = _table((-0.7, 0.01), (0.1, 0.5)), _table((-0.7, 0.01), (0.6, 0.01))
    assert "do not read it as data" in sentence_over_runs([none, none, some], [False] * 3)
    assert "compare clients only within" in sentence_over_runs([none, some, some], [False] * 3)


def test_sentence_over_runs_leaves_out_runs_of_one_width():
    tables = [_table((-0.7, 0.01), (0.1, 0.5)), _table((0.1, 0.9), (0.1, 0.5))]
    text = sentence_over_runs(tables, [False, True])
    assert "linked with capacity in 1 of 1 runs" in text
    assert "(1 of one width or without an estimate left out)" in text
    assert "nothing to audit over these 2 runs" in sentence_over_runs(tables, [True, True])


def test_group_runs_puts_seeds_together_in_order(make_run):
    runs = [load_run(make_run("hasfl", seed=s)) for s in (44, 42)] + [load_run(make_run("fedavg"))]
    groups = group_runs(runs)
    assert [(g.label, [r.seed for r in g.runs]) for g in groups] == [("hasfl", [42, 44]), ("fedavg", [42])]


def test_group_runs_names_what_differs_between_namesakes(make_run):
    on = load_run(make_run("hasfl", guarantee=True, folder="on"))
    off = load_run(make_run("hasfl", guarantee=False, folder="off"))
    assert [g.label for g in group_runs([on, off])] == ["hasfl (guarantee True)", "hasfl (guarantee False)"]


def test_group_runs_ignores_where_a_run_was_computed_and_what_a_control_copied(make_run):
    one = load_run(make_run("random-budget", seed=1, targets=[0.4, 0.5]))
    other = load_run(make_run("random-budget", seed=2, targets=[0.6, 0.5]))
    other.config["engine"] = {"executor": "serial"}
    assert len(group_runs([one, other])) == 1


def test_group_runs_puts_an_unfinished_run_beside_its_siblings(make_run):
    runs = [load_run(make_run(seed=1)), load_run(make_run(seed=2, finished=False))]
    assert [g.label for g in group_runs(runs)] == ["hasfl"]


def test_clients_of_leaves_out_clients_that_never_took_part(make_run):
    path = make_run()
    rows = pd.read_parquet(path / "clients.parquet")
    weak = rows["capacity"] < 1.0
    rows.assign(participated=rows["participated"] & ~weak).to_parquet(path / "clients.parquet")
    run = load_run(path)
    clients = clients_of(run)
    strong = np.asarray(run.partition["capacities"]) == 1.0
    assert 0 < strong.sum() < len(strong)
    assert clients.capacity.tolist() == [1.0] * int(strong.sum())
    assert clients.statistic.tolist() == np.asarray(run.result["estimates"])[strong].tolist()
