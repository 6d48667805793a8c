from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from widthwise.audit import audit
from widthwise.core.errors import CheckpointError, InputError
from widthwise.report import build_report


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """Audits take seconds each; how many resamples they draw is their own tests' business."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("widthwise.report.page.audit", partial(audit, permutations=99, bootstrap=99))
        yield


@pytest.fixture(scope="module")
def study(write_run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A page about two methods, one of them with an unfinished seed, and its text."""
    root = tmp_path_factory.mktemp("study")
    runs = [
        write_run(root, "hasfl", seed=42, rounds=4),
        write_run(root, "hasfl", seed=43, rounds=4, finished=False),
        write_run(root, "uniform", rounds=4, capacity_link=None),
    ]
    page = build_report(runs, root / "out" / "report.html")
    return page, page.read_text(encoding="utf-8")


def test_build_report_writes_a_well_formed_page_that_needs_nothing_else(study, parse):
    _, text = study
    page = parse(text)
    assert page.open == []
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object"}
    outside = page.attributes("src") + page.attributes("href") + page.attributes("xlink:href")
    assert outside
    assert all(value.startswith(("#", "figures/")) for value in outside)
    assert not re.search(r"url\((?!#)|@import", text)
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    assert {value[1:] for value in outside if value.startswith("#")} <= set(ids)


def test_build_report_describes_every_figure_and_orders_headings(study, parse):
    _, text = study
    page = parse(text)
    figures = [attrs for _, attrs in page.tags if attrs.get("role") == "img"]
    assert len(figures) == sum(tag == "svg" for tag, _ in page.tags) >= 10
    assert all(len(attrs["aria-label"] or "") > 30 for attrs in figures)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1


def test_build_report_says_what_was_found_and_what_is_unfinished(study):
    _, text = study
    assert "2 methods on digits" in text
    assert "3 runs · 2 methods · 2 seeds · 20 clients · 1 unfinished" in text
    assert "1 (+ 1 unfinished)" in text
    assert "unfinished: 2 of 4 rounds" in text
    assert "The update divergence is linked with capacity in 1 of 1 runs" in text
    assert "the estimate was not measured" in text
    assert "In this run the update divergence tracks capacity" in text


def test_build_report_writes_every_figure_as_pdf_and_links_it(study):
    page, text = study
    linked = set(re.findall(r'href="(figures/[^"]+)"', text))
    written = {f"figures/{path.name}" for path in (page.parent / "figures").iterdir()}
    assert linked == written
    assert all((page.parent / name).read_bytes().startswith(b"%PDF") for name in written)


def test_build_report_escapes_what_comes_from_files(make_run, tmp_path: Path, parse):
    hostile = "<b>x</b> & $\\alpha$"
    page = build_report([make_run(hostile, rounds=3, folder="run")], tmp_path / "report.html")
    text = page.read_text(encoding="utf-8")
    assert "<b>x" not in text
    assert "<h1>&lt;b&gt;x&lt;/b&gt; &amp; $\\alpha$ on digits</h1>" in text
    assert "a processor &lt;with &amp; signs&gt;" in text
    assert parse(text).open == []
    assert (tmp_path / "figures" / "widths-1-b-x-b-alpha.pdf").is_file()


def test_build_report_shows_a_lone_unfinished_run(make_run, tmp_path: Path):
    page = build_report([make_run(rounds=4, finished=False)], tmp_path / "report.html")
    text = page.read_text(encoding="utf-8")
    assert "hasfl (unfinished)" in text
    assert "Capacity-confound audit" not in text
    assert "No run has measured them yet." in text


def test_build_report_shows_a_run_that_has_not_started(make_run, tmp_path: Path):
    run = make_run(finished=False)
    for name in ("rounds.jsonl", "clients.parquet", "partition.json", "environment.json"):
        (run / name).unlink()
    text = build_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "unfinished: 0 of 12 rounds" in text


def test_build_report_refuses_no_runs_and_a_folder_that_is_no_run(tmp_path: Path):
    with pytest.raises(InputError, match="the list of runs is empty, but a report needs at least one"):
        build_report([], tmp_path / "report.html")
    with pytest.raises(CheckpointError, match=r"holds no config\.yaml"):
        build_report([tmp_path], tmp_path / "report.html")


def test_build_report_says_where_it_cannot_write(make_run, tmp_path: Path):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(InputError, match=r"report '.*report\.html' cannot be written \(.*\)"):
        build_report([make_run(rounds=3)], tmp_path / "file" / "report.html")
