"""The report of a study made of plausible run folders: page, tables, figures, and what is missing."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from widthwise.audit import audit, pooled_table
from widthwise.core.errors import CheckpointError, InputError
from widthwise.report import build_study_report
from widthwise.report.study.results import read_study
from widthwise.studies import Study, plan

BASE = {
    "task": {"dataset": "digits", "model": "mlp", "partition": {"kind": "dirichlet", "alpha": 0.3}},
    "training": {"rounds": 4},
}
METHODS = {
    "fedavg": {"method": {"name": "fedavg"}},
    "fedprox": {"method": {"name": "fedprox"}},
    "hasfl": {"method": {"name": "hasfl"}},
    "hasfl-no-guarantee": {"method": {"name": "hasfl", "guarantee": False}},
    "uniform": {"method": {"name": "uniform"}},
}
TASKS = {
    "cifar10": {"title": "CIFAR-10", "base": {"task": {"dataset": "cifar10"}}, "paper": "CIFAR-10"},
    "dhcd": {
        "title": "dhcd",
        "base": {"task": {"dataset": "dhcd"}},
        "paper": "EMNIST",
        "note": "46 characters & <not> EMNIST.",
        "methods": ["hasfl", "uniform"],
    },
}
SESSION = {
    "environment": {
        "time": "2026-01-02",
        "command": "widthwise study x",
        "commit": "0123",
        "packages": {"torch": "2"},
    },
    "jobs": 2,
    "runs_done": 9,
    "seconds": 7200.0,
}
Write = Callable[..., Path]
RESAMPLES = {"permutations": 99, "bootstrap": 99}


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """Audits take seconds each; how many resamples they draw is their own tests' business."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("widthwise.report.study.pooled_audit.pooled_table", partial(pooled_table, **RESAMPLES))
        yield


def write_study(root: Path, write_run: Write, runs: dict[str, Any], **study: Any) -> Path:
    """Write a study's folder; ``runs``: path -> "finished", "unfinished", "not run" or an error."""
    cells = []
    for path, state in runs.items():
        task, _, name = path.rpartition("/")
        label, _, seed = name.rpartition("-s")
        if state in ("finished", "unfinished"):
            link = None if label == "uniform" else -1.0
            write_run(
                root / task, label, seed=int(seed), rounds=4, finished=state == "finished", capacity_link=link
            )
        error = state if state not in ("finished", "unfinished", "not run") else None
        cells.append({"path": path, "task": task, "label": label, "seed": int(seed), "error": error})
    content = {"base": BASE, "methods": METHODS, "seeds": [42, 43], **study}
    manifest = {"name": "x", "profile": "small", "study": content, "runs": cells, "sessions": [SESSION]}
    (root / "study.json").write_text(json.dumps(manifest), encoding="utf-8")
    for run in plan(Study(**content), root):
        if (run.path / "config.yaml").is_file():  # what the study plans is what was run
            stored = {"name": run.label, **run.config.to_dict()}
            (run.path / "config.yaml").write_text(yaml.safe_dump(stored), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def paper_study(write_run: Write, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = {f"cifar10/{label}-s{seed}": "finished" for seed in (42, 43) for label in METHODS}
    runs |= {"cifar10/fedprox-s42": "not run", "cifar10/fedprox-s43": "not run"}
    runs |= {"dhcd/hasfl-s42": "finished", "dhcd/hasfl-s43": "unfinished"}
    runs |= {"dhcd/uniform-s42": "not run", "dhcd/uniform-s43": "client 3, round 7: the loss is nan"}
    root = tmp_path_factory.mktemp("study")
    write_study(root, write_run, runs, tasks=TASKS, paper="moayedikia-2026", title="A <study> & more")
    build_study_report(root)
    return root


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def one(folder: Path, name: str, **where: str) -> dict[str, str]:
    found = [row for row in rows(folder, name) if all(row[key] == value for key, value in where.items())]
    assert len(found) == 1
    return found[0]


def final(folder: Path, path: str) -> float:
    return 100 * json.loads((folder / path / "result.json").read_text(encoding="utf-8"))["final_accuracy"]


def test_build_study_report_writes_a_well_formed_page_whose_links_exist(paper_study, parse):
    text = (paper_study / "report.html").read_text(encoding="utf-8")
    page = parse(text)
    assert page.open == []
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object"}
    ids = [attrs["id"] for _, attrs in page.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    links = [attrs["href"] or "" for tag, attrs in page.tags if tag == "a"]
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    folders = [link for link in links if link.endswith("/")]
    assert folders
    assert all((paper_study / folder / "result.json").is_file() for folder in folders)
    files = [link for link in links if not link.startswith("#") and not link.endswith("/")]
    assert all((paper_study / file).is_file() for file in files)
    written = {f"{d}/{path.name}" for d in ("tables", "figures") for path in (paper_study / d).iterdir()}
    assert written == set(files)
    assert "A &lt;study&gt; &amp; more" in text
    assert "46 characters &amp; &lt;not&gt; EMNIST." in text


def test_build_study_report_describes_its_figures(paper_study, parse):
    page = parse((paper_study / "report.html").read_text(encoding="utf-8"))
    alts = [attrs["aria-label"] or "" for _, attrs in page.tags if attrs.get("role") == "img"]
    assert len(alts) == sum(tag == "svg" for tag, _ in page.tags) == 9
    assert any(re.search(r"Figure 3: .*CIFAR-10: hasfl ends at [\d.]+, uniform ends", alt) for alt in alts)
    notes = re.findall(r"<figcaption>(.*?) <a", (paper_study / "report.html").read_text(encoding="utf-8"))
    assert any("not drawn: fjord on CIFAR-10; fjord, uniform on dhcd." in note for note in notes)


def test_tables_hold_mean_sd_and_difference_to_the_paper(paper_study):
    values = [final(paper_study, f"cifar10/hasfl-s{seed}") for seed in (42, 43)]
    mean = one(paper_study, "table-3", task="CIFAR-10", method="hasfl", quantity="final", seed="mean")
    assert float(mean["value"]) == pytest.approx(np.mean(values))
    assert float(mean["sd"]) == pytest.approx(np.std(values, ddof=1))
    assert (mean["n"], mean["paper"], mean["paper_sd"]) == ("2", "74.5", "5.6")
    assert float(mean["difference"]) == pytest.approx(np.mean(values) - 74.5)
    assert mean["runs"] == "cifar10/hasfl-s42 cifar10/hasfl-s43"
    single = one(paper_study, "table-3", task="CIFAR-10", method="hasfl", quantity="final", seed="43")
    assert float(single["value"]) == pytest.approx(values[1])
    assert single["runs"] == "cifar10/hasfl-s43"


def test_tables_form_no_difference_on_other_data(paper_study):
    mean = one(paper_study, "table-3", task="dhcd", method="hasfl", quantity="final", seed="mean")
    assert (mean["paper"], mean["difference"], mean["n"]) == ("77.7", "", "1")
    assert mean["state"] == "s42 finished; s43 unfinished: 2 of 4 rounds"
    shown = (paper_study / "tables" / "table-3.tex").read_text(encoding="utf-8")
    assert "other data" in shown
    assert r"EMNIST: 77.7 $\pm$ 4.6" in shown


def test_numbers_of_another_data_set_bear_its_name(paper_study):
    text = (paper_study / "report.html").read_text(encoding="utf-8")
    row = one(paper_study, "claims", claim="1a", task="dhcd")
    assert row["paper_task"] == "EMNIST"
    assert "EMNIST: −0.76" in text  # Table 5: the mean of −.75, −.72 and −.81
    together = one(paper_study, "claims", claim="2b", task="CIFAR-10")
    assert together["paper_task"] == "CIFAR-10"
    first = one(paper_study, "table-5", task="dhcd", quantity="r(H, capacity)", seed="42")
    assert (first["paper"], first["paper_task"], first["difference"]) == ("-0.75", "EMNIST", "")


def test_tables_say_what_was_not_run(paper_study):
    state = {
        (row["task"], row["method"]): row["state"]
        for row in rows(paper_study, "table-3")
        if row["seed"] == "mean" and row["quantity"] == "final"
    }
    assert state["CIFAR-10", "fjord"] == "not run"
    assert state["dhcd", "uniform"] == "s42 not run; s43 failed: client 3, round 7: the loss is nan"
    text = (paper_study / "report.html").read_text(encoding="utf-8")
    assert "9 of 14 planned runs finished" in text
    assert "failed: client 3, round 7: the loss is nan" in text
    assert "not in the paper" in text


def test_table_1_has_no_difference_in_printed_digits(paper_study):
    assert len(rows(paper_study, "table-1")) == 3 * 4 * 3
    assert all(abs(float(row["difference"])) < 1e-9 for row in rows(paper_study, "table-1"))


def test_comparisons_are_paired_by_seed(paper_study):
    differences = [
        final(paper_study, f"cifar10/hasfl-s{seed}") - final(paper_study, f"cifar10/fedavg-s{seed}")
        for seed in (42, 43)
    ]
    mean = one(paper_study, "comparisons", first="hasfl", second="fedavg", task="CIFAR-10", seed="mean")
    assert float(mean["value"]) == pytest.approx(np.mean(differences))
    # t(0.975; 1) = 12.706 (tables), over the root of 2.
    half = 12.7062 / np.sqrt(2) * np.std(differences, ddof=1)
    assert float(mean["high"]) - float(mean["value"]) == pytest.approx(half, rel=1e-5)


def test_claims_have_verdicts_and_name_their_runs(paper_study):
    capacity = one(paper_study, "claims", claim="1a", task="CIFAR-10")
    assert (capacity["verdict"], capacity["n"]) == ("supported", "2")
    assert capacity["runs"] == "cifar10/hasfl-s42 cifar10/hasfl-s43"
    assert one(paper_study, "claims", claim="1a", task="dhcd")["reason"] == "one seed gives no interval"
    fedprox = one(paper_study, "claims", claim="4d", task="CIFAR-10")
    assert (fedprox["verdict"], fedprox["reason"]) == ("not tested", "no finished run of fedprox")
    share = one(paper_study, "claims", claim="4a", task="Shakespeare LSTM", statistic=LSTM_SHARE)
    # Table 1 prints 0.06 of 0.82 million parameters; exactly, 59,159 of 823,895 are 7.18 %: rounded, 7.
    assert (share["value"], share["verdict"]) == (str(round(100 * 59159 / 823895, 9)), "supported")


LSTM_SHARE = "parameters at width 0.25 in % of width 1 (counted exactly)"


def test_tiers_table_has_every_sub_model(paper_study):
    result = json.loads((paper_study / "cifar10/uniform-s42/result.json").read_text(encoding="utf-8"))
    row = one(paper_study, "tiers", task="CIFAR-10", method="uniform", width="0.5", seed="42")
    assert float(row["value"]) == pytest.approx(100 * result["width_accuracy"]["0.5"])


def test_headline_and_results_have_a_row_for_each_method_and_run(paper_study):
    headline = one(paper_study, "headline", task="CIFAR-10", method="uniform")
    values = [final(paper_study, f"cifar10/uniform-s{seed}") for seed in (42, 43)]
    assert headline["final_mean"] == f"{np.mean(values):.2f}".rstrip("0").rstrip(".")
    run = one(paper_study, "results", path="cifar10/uniform-s42")
    assert (run["config_hash"], run["seconds"], run["state"]) == (f"{42:016x}", "2.0", "finished")
    assert len(rows(paper_study, "results")) == 14


def test_latex_escapes_and_uses_booktabs(paper_study):
    for file in (paper_study / "tables").glob("*.tex"):
        text = file.read_text(encoding="utf-8")
        assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
        body = text.split("\n", 1)[1]  # the first line is a comment
        assert not re.search(r"(?<!\\)[%#&]", re.sub(r" & ", " ", body))
        assert text.isascii() or set(re.findall(r"[^\x00-\x7f]", text)) <= {"\u00b7"}
        columns = len(re.search(r"begin\{tabular\}\{(\w+)\}", text)[1])
        lines = [line for line in body.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert {line.count(" & ") + 1 for line in lines} == {columns}


def test_build_study_report_gives_the_same_bytes_again(paper_study):
    def content() -> dict[str, bytes]:
        files = [path for path in paper_study.rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in files}

    before = content()
    build_study_report(paper_study)
    assert content() == before


def test_build_study_report_of_a_study_without_a_paper(write_run, tmp_path: Path):
    runs = {"hasfl-s42": "finished", "uniform-s42": "finished"}
    methods = {label: METHODS[label] for label in ("hasfl", "uniform")}
    root = write_study(tmp_path / "in", write_run, runs, methods=methods, seeds=[42])
    page = build_study_report(root, tmp_path / "out" / "page.html")
    text = page.read_text(encoding="utf-8")
    assert "2 of 2 planned runs finished · digits · 2 methods · seeds 42" in text
    assert "Claims of the paper" not in text
    assert "one seed: no interval" in text
    figures = {path.stem for path in (tmp_path / "out" / "figures").glob("*.pdf")}
    assert {"accuracy", "loss"} < figures
    assert "Figure " not in text
    tables = {path.name for path in (tmp_path / "out" / "tables").glob("*.csv")}
    assert {"all-results.csv", "comparisons.csv", "headline.csv"} <= tables
    assert not tables & {"claims.csv", "table-1.csv", "table-3.csv"}


def test_build_study_report_counts_a_damaged_run_as_failed(write_run, tmp_path: Path):
    root = write_study(
        tmp_path, write_run, {"hasfl-s42": "finished"}, methods={"hasfl": METHODS["hasfl"]}, seeds=[42]
    )
    (root / "hasfl-s42" / "partition.json").write_text("{", encoding="utf-8")
    (cell,) = read_study(root).cells
    assert not cell.done
    assert cell.state.startswith("failed: partition.json in run folder")


def test_build_study_report_refuses_what_is_no_study(write_run, tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"folder is .* but it holds no study\.json"):
        build_study_report(tmp_path)
    root = write_study(
        tmp_path, write_run, {"hasfl-s42": "not run"}, methods={"hasfl": METHODS["hasfl"]}, seeds=[42]
    )
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(InputError, match=r"report '.*page\.html' cannot be written"):
        build_study_report(root, tmp_path / "file" / "page.html")


def test_build_study_report_refuses_an_unknown_paper(write_run, tmp_path: Path):
    root = write_study(tmp_path, write_run, {"hasfl-s42": "not run"})
    manifest = json.loads((root / "study.json").read_text())
    manifest["study"]["paper"] = "other"
    (root / "study.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"study\.json in .* is damaged \(.*paper"):
        build_study_report(tmp_path)


def test_pooled_audit_table_holds_the_audit_of_all_seeds(paper_study):
    paths = [paper_study / f"cifar10/hasfl-s{seed}" for seed in (42, 43)]
    (pooled,) = audit(paths, **RESAMPLES).pooled.values()
    where = {"task": "CIFAR-10", "method": "hasfl", "quantity": "r(H, capacity)"}
    for kind, cells in (("pearson", pooled.table.pearson), ("spearman", pooled.table.spearman)):
        row = one(paper_study, "pooled-audit", **where, kind=kind)
        cell = cells["r_estimate_capacity"]
        assert float(row["value"]) == pytest.approx(cell.value)
        assert float(row["p_value"]) == pytest.approx(cell.p_value)
        assert row["n"] == "2"
        assert row["runs"] == "cifar10/hasfl-s42 cifar10/hasfl-s43"


def test_build_study_report_leaves_out_runs_of_another_configuration(write_run, tmp_path: Path):
    runs = {"fedavg-s42": "finished", "hasfl-s42": "finished"}
    write_study(tmp_path, write_run, runs, seeds=[42])
    config = tmp_path / "hasfl-s42" / "config.yaml"
    config.write_text(re.sub(r"local_epochs: \d+", "local_epochs: 7", config.read_text()))
    states = {cell.path: cell.state for cell in read_study(tmp_path).cells}
    assert states["fedavg-s42"] == "finished"
    assert states["hasfl-s42"] == "other configuration: training.local_epochs 7, now 5"
