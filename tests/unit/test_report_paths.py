from __future__ import annotations

from pathlib import Path

import pytest

from widthwise.core.errors import CheckpointError, InputError
from widthwise.report import report_paths


def test_report_paths_puts_the_page_of_one_run_inside_it(make_run):
    run = make_run(clients=4, rounds=2)
    runs, out = report_paths([run])
    assert runs == [run]
    assert out.resolve() == (run / "report.html").resolve()


def test_report_paths_looks_into_folders_of_runs_and_names_each_once(make_run, tmp_path: Path):
    for name in ("b", "a", "deep/c"):
        make_run(clients=4, rounds=2, folder=f"study/{name}")
    study = tmp_path / "study"
    runs, out = report_paths([study / "b", study])
    assert [run.relative_to(study).as_posix() for run in runs] == ["b", "a", "deep/c"]
    assert out.resolve() == (study / "report.html").resolve()


def test_report_paths_of_runs_apart_is_the_folder_that_holds_both(make_run, tmp_path: Path):
    runs = [make_run(clients=4, rounds=2, folder=f"{name}/run") for name in ("one", "two")]
    assert report_paths(runs)[1].resolve() == (tmp_path / "report.html").resolve()


def test_report_paths_refuses_a_folder_without_runs_and_no_folder(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"but there is no run in it \(no config\.yaml\)"):
        report_paths([tmp_path])
    with pytest.raises(CheckpointError, match="there is no run in it"):
        report_paths([tmp_path / "missing"])
    with pytest.raises(InputError, match="the list of folders is empty, but a report needs at least one run"):
        report_paths([])
