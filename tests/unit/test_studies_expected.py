"""The paper's numbers, compared with cells typed here independently, and the reader's messages."""

from __future__ import annotations

import pytest

from widthwise.audit.table import COLUMNS
from widthwise.core.errors import ConfigError
from widthwise.methods import build_method
from widthwise.studies import bundled_studies, load_study
from widthwise.studies.claims import Share
from widthwise.studies.expected import expected_names, load_expected


@pytest.fixture(scope="module")
def paper():
    return load_expected("moayedikia-2026")


def test_load_expected_gives_the_cells_that_the_paper_prints(paper):
    # Tables 3, 4, 6 and 7 of arXiv 2608.07157v1.
    cifar, emnist, text = (paper.results[task] for task in ("CIFAR-10", "EMNIST", "Shakespeare"))
    assert (cifar["hasfl"].best, cifar["hasfl"].final, cifar["hasfl"].width) == (
        (76.7, 4.9),
        (74.5, 5.6),
        0.52,
    )
    assert cifar["hasfl-no-guarantee"].final == (40.4, 10.2)
    assert cifar["fedprox"].final == (65.5, 2.0)
    assert emnist["uniform"].final == (9.4, 3.8)
    assert emnist["scaffold"].best == (87.5, 0.2)
    assert emnist["random-budget"].width == 0.49
    assert text["fjord"].final == (32.6, 1.3)
    assert [cifar[label].mean("peak_to_final") for label in ("hasfl", "hasfl-no-guarantee", "heterofl")] == [
        -2.2,
        -16.8,
        -1.2,
    ]


def test_load_expected_gives_correlations_and_costs(paper):
    assert paper.correlations["hasfl"]["CIFAR-10"][44] == (0.21, -0.84, -0.40, -0.46)  # Table 5
    assert paper.correlations["hasfl"]["EMNIST"][42][1] == -0.75
    by_title = {model.title: model.rows for model in paper.costs}  # Table 1
    assert by_title["EMNIST CNN"][0.75] == (1.85, 66.6, 7.40)
    assert by_title["Shakespeare LSTM"][0.25] == (0.06, 4.1, 0.24)


def test_load_expected_lists_the_rows_of_every_table(paper):
    assert {number: len(table.methods) for number, table in paper.tables.items()} == {3: 3, 4: 3, 6: 5, 7: 3}
    for table in paper.tables.values():
        for task in table.tasks:
            printed = [label for label in table.methods if paper.result(task, label)]
            # Table 4 has no HeteroFL on EMNIST; every other row is printed.
            assert set(table.methods) - set(printed) <= ({"heterofl"} if task == "EMNIST" else set())


def test_result_takes_the_decay_from_the_means_where_it_is_not_printed(paper):
    assert paper.results["CIFAR-10"]["uniform"].mean("peak_to_final") == pytest.approx(54.5 - 63.6)
    assert paper.results["CIFAR-10"]["uniform"].sd("peak_to_final") is None


def test_result_is_none_where_the_paper_has_no_row(paper):
    assert paper.result("EMNIST", "heterofl") is None
    assert paper.result(None, "hasfl") is None


@pytest.mark.parametrize("name", expected_names())
def test_names_in_a_paper_are_its_own(name):
    paper = load_expected(name)
    known = list(paper.methods)
    titles = [model.title for model in paper.costs]
    for method in paper.methods.values():
        build_method(method.method)  # its parts and options exist
    for label, method in paper.methods.items():
        assert method.matched_to is None or method.matched_to in known[: known.index(label)]
    for shown in (*paper.tables.values(), *paper.figures.values()):
        assert set(shown.methods) <= set(known)
    assert {method for rows in paper.results.values() for method in rows} <= set(known)
    assert set(paper.correlations) <= set(known)
    assert len({claim.short for claim in paper.claims}) == len(paper.claims)
    for claim in paper.claims:
        for statistic in claim.statistics:
            assert set(claim.tasks) <= set(titles if isinstance(statistic, Share) else paper.tasks)
            assert set(getattr(statistic, "methods", ())) <= set(known)
            assert getattr(statistic, "correlation", COLUMNS[0]) in COLUMNS
        assert claim.region.low < claim.region.high


def test_load_expected_refuses_an_unknown_name():
    with pytest.raises(
        ConfigError, match=r"paper is .moayedikia-2025., but no such name is known\. Did you mean"
    ):
        load_expected("moayedikia-2025")


@pytest.mark.parametrize("name", bundled_studies())
def test_bundled_studies_name_papers_and_tasks_that_exist(name):
    for profile in (None, *load_study(name).profiles):
        study = load_study(name, profile)
        if study.paper is None:
            continue
        assert study.paper in expected_names()
        known = load_expected(study.paper)
        assert {task.paper for task in study.tasks.values()} <= {None, *known.tasks}
        assert set(known.methods) & set(study.methods)
