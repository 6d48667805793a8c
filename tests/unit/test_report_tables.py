from __future__ import annotations

import json
import re

import numpy as np
import pytest

from widthwise.audit import audit, group_runs
from widthwise.engine.runs import load_run
from widthwise.report.clients import widths_plot
from widthwise.report.comparison import comparison_plots, curve, shown, tier_means
from widthwise.report.style import looks, tier_colours
from widthwise.report.tables import (
    audit_tables,
    mean_sd,
    provenance_tables,
    results_table,
    settings_tables,
    tier_table,
)


def _edit(path, file, **changes):
    content = json.loads((path / file).read_text(encoding="utf-8"))
    (path / file).write_text(json.dumps(content | changes), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("numbers", "expected"),
    # sd of (0.7, 0.9) with n - 1: sqrt(0.02) = 0.1414
    [([], "–"), ([0.5], "50.0"), ([0.7, 0.9], "80.0 ± 14.1"), ([12.0, 12.0], "1,200.0 ± 0.0")],
)
def test_mean_sd_shows_a_spread_only_for_several_numbers(numbers, expected):
    assert mean_sd(numbers, 100) == expected


def test_results_table_takes_mean_and_sd_over_finished_seeds_only(make_run, tmp_path):
    kept = {"best_accuracy": 0.8, "mean_width": 0.5, "bytes_up": 2e6, "bytes_down": 3e6, "macs": 4e12}
    for seed, final in ((1, 0.70), (2, 0.74)):
        _edit(make_run(seed=seed, rounds=4), "result.json", final_accuracy=final, **kept)
    make_run(seed=3, rounds=4, finished=False)
    runs = [load_run(tmp_path / f"hasfl-s{seed}") for seed in (1, 2, 3)]
    table = results_table(group_runs(runs))
    assert table.rows == (
        (
            "hasfl",
            "2 (+ 1 unfinished)",
            "80.0 ± 0.0",
            "72.0 ± 2.8",
            "0.50 ± 0.00",
            "2.0 ± 0.0",
            "3.0 ± 0.0",
            "4.00 ± 0.00",
        ),
    )
    assert table.head[-1] == "MACs (10¹²)"


def test_widths_plot_says_how_many_train_all_or_more_than_they_can(make_run):
    capacity = np.resize([0.25, 0.5, 0.75, 1.0], 8)
    for widths, title in (
        (np.minimum(capacity, 0.5), "4 of 8 clients train all that they can"),
        (np.ones(8), "6 of 8 clients train more than their capacity"),
    ):
        run = load_run(make_run(clients=8, rounds=2, widths=widths, folder=title))
        plot = widths_plot(run, "x", looks(["hasfl"])["hasfl"])
        assert plot.title == title
        assert "Mean capacity 0.62" in plot.alt


def test_results_table_labels_masked_compute(make_run):
    runs = [
        _edit(make_run(name), "result.json", compute=how) for name, how in (("a", "dense"), ("b", "masked"))
    ]
    table = results_table(group_runs([load_run(run) for run in runs]))
    assert [row[0] for row in table.rows] == ["a", "b (masked compute)"]


def test_results_table_shows_dashes_for_an_unfinished_method(make_run):
    table = results_table(group_runs([load_run(make_run(finished=False))]))
    assert table.rows == (("hasfl", "0 (+ 1 unfinished)", *["–"] * 6),)


def test_curve_averages_over_seeds_where_measured(make_run):
    runs = [load_run(make_run(seed=s, rounds=6, eval_every=3)) for s in (1, 2)]
    table = curve(runs, "accuracy")
    assert table["round"].tolist() == [2, 5]
    expected = np.mean([run.rounds["accuracy"].dropna() for run in runs], axis=0)
    assert table["mean"].to_numpy() == pytest.approx(expected)


def test_shown_prefers_finished_runs(make_run):
    done, broken = load_run(make_run(seed=1)), load_run(make_run(seed=2, finished=False))
    assert [r.seed for r in shown(group_runs([done, broken])[0])] == [1]
    assert [r.seed for r in shown(group_runs([broken])[0])] == [2]


def test_tier_table_has_a_column_per_tier(make_run):
    run = _edit(make_run(), "result.json", width_accuracy={"1.0": 0.9, "0.25": 0.55})
    none = _edit(make_run("fedavg"), "result.json", width_accuracy=None)
    groups = group_runs([load_run(run), load_run(none)])
    assert tier_means(groups[0].runs) == {0.25: 0.55, 1.0: 0.9}
    table = tier_table(groups)
    assert table is not None
    assert table.head == ("method", "width 0.25", "width 1")
    assert table.rows == (("hasfl", "55.0", "90.0"),)
    assert tier_table(groups[1:]) is None


def test_settings_tables_tell_shared_from_differing_settings(make_run):
    groups = group_runs([load_run(make_run("hasfl", gamma=0.25)), load_run(make_run("heterofl"))])
    shared, differing = settings_tables(groups)
    assert ("task.dataset", "digits") in shared.rows
    assert not any(
        row[0] in ("seed", "engine.workers", "config_hash") for row in shared.rows + differing.rows
    )
    assert differing.head == ("setting", "hasfl", "heterofl")
    assert ("method.gamma", "0.25", "–") in differing.rows


def test_settings_tables_shorten_long_lists(make_run):
    run = load_run(make_run("random-budget", targets=[0.5, *[0.4] * 98, 0.25]))
    (shared,) = settings_tables(group_runs([run]))
    assert ("method.targets", "0.5 … 0.25 (100 values)") in shared.rows


def test_provenance_tables_say_where_how_and_on_what(make_run, tmp_path):
    _edit(make_run(seed=1, rounds=8), "environment.json", commit="aaa")
    make_run(seed=2, rounds=8, finished=False)
    groups = group_runs([load_run(tmp_path / f"hasfl-s{s}") for s in (1, 2)])
    runs, shared, differing = provenance_tables(groups, tmp_path / "report.html")
    assert [row[:3] for row in runs.rows] == [
        ("hasfl s1", "finished", "hasfl-s1"),
        ("hasfl s2", "unfinished: 4 of 8 rounds", "hasfl-s2"),
    ]
    assert runs.rows[0][4] == "widthwise run examples/hasfl.yaml"
    assert ("packages.torch", "2.13.0") in shared.rows
    assert ("packages.tensorboard", "–") in shared.rows
    assert differing.rows == (("commit", "aaa", "0123456789ab"),)


def test_audit_tables_show_numbers_reasons_and_spread(make_run):
    paths = [make_run(seed=1), make_run(seed=2), make_run("uniform", capacity_link=None)]
    cells, together, spread, tiers = audit_tables(audit(paths, permutations=2000, bootstrap=100))
    assert cells.rows[0][0] == "hasfl s1"
    assert cells.rows[0][2].startswith("-0.9")
    assert "p < 0.001 [-" in cells.rows[0][2]
    assert cells.rows[2][1] == "– (the estimate was not measured)"
    assert [row[0] for row in together.rows] == ["hasfl"]
    assert re.fullmatch(r"-0\.9\d p < 0\.001 t over 2 runs \[-.*\] bootstrap \[-.*\]", together.rows[0][2])
    assert 0 < float(together.rows[0][-1]) < 0.6
    assert "n = 2)" in spread.rows[0][2]
    assert [row[0] for row in spread.rows] == ["hasfl"]
    assert tiers.head == ("run", "capacity 0.25", "capacity 0.5", "capacity 0.75", "capacity 1")
    assert tiers.rows[0][1].endswith("(n = 5)")
    assert tiers.rows[2][1] == "– (the estimate was not measured)"


def test_audit_tables_of_one_run_have_no_spread(make_run):
    assert len(audit_tables(audit(make_run(), permutations=99, bootstrap=50))) == 2


def test_comparison_plots_name_the_best_and_leave_out_what_was_not_measured(make_run, tmp_path):
    _edit(make_run("fedavg", capacity_link=None), "result.json", final_accuracy=0.951)
    _edit(make_run("uniform", capacity_link=None), "result.json", final_accuracy=0.3)
    groups = group_runs([load_run(tmp_path / f"{name}-s42") for name in ("fedavg", "uniform")])
    plots = comparison_plots(groups, looks([g.label for g in groups]))
    assert plots["accuracy"].title == "fedavg ends highest, at 95.1 %"
    assert "estimate_mean" not in plots
    assert set(plots) == {
        "accuracy",
        "loss",
        "mean_width",
        "coverage",
        "ever_covered",
        "accuracy-against-width",
        "tier-accuracy",
    }


def test_comparison_plots_of_unfinished_runs_show_curves_only(make_run):
    groups = group_runs([load_run(make_run(finished=False))])
    plots = comparison_plots(groups, looks(["hasfl"]))
    assert "accuracy-against-width" not in plots
    assert "hasfl (unfinished)" in plots["accuracy"].alt


def test_plot_svg_is_the_same_twice_and_keeps_its_ids_to_itself(make_run):
    run = load_run(make_run())
    first, again = (widths_plot(run, "1-hasfl", looks(["hasfl"])["hasfl"]).svg() for _ in range(2))
    assert first == again
    assert first.startswith("<svg ")
    ids = re.findall(r'\bid="([^"]+)"', first)
    assert ids
    assert all(name.startswith("widths-1-hasfl-") for name in ids)
    assert set(re.findall(r"""(?:url\(|href=")#([^)"]+)""", first)) <= set(ids)


def test_looks_are_distinct_for_many_experiments():
    found = looks([str(i) for i in range(21)])
    assert len({(look.colour, look.line) for look in found.values()}) == 21
    assert found["0"] == looks(["0", "x"])["0"]


def test_tier_colours_are_distinct():
    assert len(set(tier_colours([0.25, 0.5, 0.75, 1.0]).values())) == 4
    assert set(tier_colours([0.5])) == {0.5}
