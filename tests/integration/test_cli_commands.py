from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from widthwise.cli import app
from widthwise.engine.runs import load_run
from widthwise.report import build_report

ROOT = Path(__file__).parents[2]
RUN: dict[str, Any] = {
    "task": {
        "dataset": "digits",
        "model": {"name": "mlp", "hidden": [8]},
        "clients": 6,
        "partition": {"kind": "iid"},
        "limit": 300,
    },
    "capacity": {"list": [0.25, 0.25, 0.5, 0.5, 1.0, 1.0]},
    "method": {"name": "hasfl", "warmup": 0, "adapt_every": 1},
    "training": {"rounds": 2, "cohort": 3, "local_epochs": 1, "batch_size": 16, "lr": 0.05},
    "engine": {"executor": "serial"},
}


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def written(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@pytest.fixture(scope="module", autouse=True)
def _quick_report() -> Iterator[None]:
    """Drawing the figures takes seconds; only the test of the report itself waits for them."""

    def write(runs: Sequence[Path], out: Path, title: str | None = None) -> Path:
        out.write_text(f"{title}: {[run.name for run in runs]}")
        return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("widthwise.report.build_report", write)
        yield


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("config") / "tiny.yaml", RUN)


@pytest.fixture(scope="module")
def finished(config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("runs") / "tiny"
    return out, call("run", config, "--out", out)


def test_run_ends_with_a_table_and_names_folder_and_report(finished: tuple[Path, Result]) -> None:
    out, result = finished
    assert result.exit_code == 0, result.output
    assert re.search(r"hasfl\s+│ 42 ", result.stdout)
    assert f"run folder: {out}" in result.stderr
    assert f"report: {out / 'report.html'}" in result.stderr
    assert (out / "report.html").is_file()
    assert load_run(out).complete


def test_run_shows_progress_on_stderr(finished: tuple[Path, Result]) -> None:
    lines = re.findall(
        r"hasfl: round (\d)/2  accuracy +[\d.]+%  width [\d.]+  coverage +\d+%  [\d.]+ MB  0:00 left",
        finished[1].stderr,
    )
    assert lines[-1] == "2"


def test_run_prints_nothing_but_json_when_asked(config: Path, tmp_path: Path) -> None:
    result = call("run", config, "--out", tmp_path / "x", "--seed", 7, "--set", "training.rounds=1", "--json")
    printed = json.loads(result.stdout)
    assert printed == json.loads((tmp_path / "x" / "result.json").read_text())
    assert (printed["seed"], printed["rounds"]) == (7, 1)


def test_run_writes_below_runs_by_default(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("run", config, "--set", "training.rounds=1", "--set", "method.name=heterofl")
    assert result.exit_code == 0, result.output
    assert load_run(tmp_path / "runs" / "tiny-heterofl-s42").method == "heterofl"


def test_run_refuses_a_folder_that_holds_a_run_already(config: Path, finished: tuple[Path, Result]) -> None:
    result = call("run", config, "--out", finished[0])
    assert result.exit_code == 2
    assert "Add --resume to go on with it" in result.stderr


def test_run_refuses_a_folder_of_another_configuration(config: Path, finished: tuple[Path, Result]) -> None:
    before = sorted(finished[0].rglob("*"))
    result = call("run", config, "--out", finished[0], "--resume", "--set", "training.lr=0.1")
    assert result.exit_code == 2
    assert "it holds a run of another configuration" in result.stderr
    assert sorted(finished[0].rglob("*")) == before


def test_run_refuses_a_folder_that_cannot_be_written(config: Path) -> None:
    result = call("run", config, "--out", "/proc/nothing/here")
    assert result.exit_code == 2
    assert "/proc/nothing/here" in result.stderr


def test_run_reads_a_finished_run_when_resumed(config: Path, finished: tuple[Path, Result]) -> None:
    result = call("run", config, "--out", finished[0], "--resume", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == load_run(finished[0]).result


def test_run_warns_of_what_is_never_trained(config: Path, tmp_path: Path) -> None:
    result = call(
        "run", config, "--out", tmp_path / "u", "--set", "method.name=uniform", "--set", "training.rounds=1"
    )
    assert result.exit_code == 0, result.output
    assert re.search(
        r"^warning: \d+\.\d% of the model's coordinates .* can never be trained", result.stderr, re.M
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--set", "training.lrr=1"],
            "error: training.lrr is 1, but there is no such key. Did you mean 'training.lr'?",
        ),
        (["--set", "training.cohort=7"], "training.cohort is 7, but there are only 6 clients"),
        (["--set", "method.objective=control-variates"], "control variates need plain SGD"),
        (["--set", "task.limit=5"], "clients is 6, but there are 5 training samples"),
        (["--set", "capacity.list=[1]"], "capacity.list has 1 entries, but clients is 6"),
        (["--set", "rubbish"], "has no key=value form"),
        (["--seed", "x"], "'x' is not a valid int"),
        (["--sed", "1"], "--sed"),
        (["--data-dir", "/nonexistent", "--set", "task={dataset: dhcd, model: mlp}"], "/nonexistent"),
    ],
)
def test_run_exits_with_2_and_writes_nothing_when_the_input_is_bad(
    config: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = call("run", config, "--out", tmp_path / "x", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "x").exists()


def test_cost_names_the_operation_that_cannot_be_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "untraceable.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Sequential):\n"
        "    def __init__(self):\n"
        "        super().__init__(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))\n"
        "    def forward(self, x):\n"
        "        return self[1](torch.linalg.pinv(self[0](x)).T)\n"
        "def build():\n"
        "    return Net(), torch.zeros(2, 8)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = call("cost", "untraceable:build")
    assert result.exit_code == 2
    assert "linalg_pinv" in result.stderr


def test_run_exits_with_1_and_names_the_log_when_training_diverges(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "x"
    result = call(
        "run", config, "--out", out, "--set", "training.lr=1e30", "--set", "training.clip_norm=null"
    )
    assert result.exit_code == 1
    assert re.search(r"error: client \d, round \d, stage .*", result.stderr)
    assert f"The full traceback of the failure is in {out / 'error.txt'}." in result.stderr
    assert "DivergenceError" in (out / "error.txt").read_text()


def test_errors_keep_their_traceback_when_debugging(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDTHWISE_DEBUG", "1")
    result = call("run", config, "--set", "seed=x")
    assert type(result.exception).__name__ == "ConfigError"


def test_run_saves_and_resumes_when_interrupted(
    config: Path, tmp_path: Path, finished: tuple[Path, Result]
) -> None:
    out = tmp_path / "x"
    command = [sys.executable, "-m", "widthwise.cli", "run", str(config), "--out", str(out)]
    long = [*command, "--set", "training.rounds=2000"]
    # A shell starts background jobs with Ctrl-C ignored, and children inherit that: ask for the default.
    process = subprocess.Popen(
        long,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while not (out / "rounds.jsonl").exists() and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Add --resume to go on." in errors
    assert "Traceback" not in errors
    done = len((out / "rounds.jsonl").read_text().splitlines())
    assert 1 <= done < 2000
    assert (out / "checkpoint").is_dir()
    assert not load_run(out).complete


def test_cost_gives_the_printed_digits_of_the_papers_table() -> None:
    # arXiv 2608.07157, Table 1: parameters (M), MACs (M), upload (MB) of the CIFAR-10 network at half width.
    result = call("cost", "cnn", "--task", "cifar10", "--json", "--widths", "0.5")
    (row,) = json.loads(result.stdout)
    assert set(row) == {"width", "params", "macs", "upload_bytes"}
    shown = f"{row['params'] / 1e6:.2f} {row['macs'] / 1e6:.1f} {row['upload_bytes'] / 1e6:.2f}"
    assert shown == "0.82 39.2 3.26"


def test_cost_prints_a_row_for_each_default_width() -> None:
    result = call("cost", "cnn-small", "--norm", "batch")
    assert re.findall(r"^│ ([\d.]+)", result.stdout, re.M) == ["0.25", "0.5", "0.75", "1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cost", "cnnn"], "model is 'cnnn', but no such name is known. Did you mean 'cnn'?"),
        (["cost", "cnn", "--task", "cifar"], "Did you mean 'cifar10'?"),
        (["cost", "lstm", "--task", "cifar10"], "the data is of kind 'image'"),
        (["cost", "mlp", "--widths", "a"], "is no list of numbers"),
        (["cost", "mlp", "--widths", "1.5"], "1.5"),
        (["cost", "nowhere:build"], "model is 'nowhere:build', but there is no module 'nowhere'. Run from"),
        (["cost", "json:nothing"], "has no 'nothing'. Name a function or class that it defines"),
        (["cost", ":"], "model is ':', but importing '' raised ValueError: Empty module name"),
        (["cost", "os:getcwd"], "Let it return (model, example_inputs), or name their shapes"),
        (["cost", "json:loads"], "model is 'json:loads', but that gives no model (TypeError"),
        (["data", "digit"], "Did you mean 'digits'?"),
        (
            ["data", "digits", "--partition", "{kind: dirichlet, alhpa: 1}"],
            "Did you mean 'task.partition.alpha'?",
        ),
        (["data", "digits", "--partition", "["], "is no YAML"),
        (["data", "digits", "--clients", "0"], "task.clients is 0"),
        (["study", "digit"], "Did you mean 'digits'?"),
        (["study", "digits", "--seeds", "1,b"], "is no list of whole numbers"),
        (["audit", "nowhere"], "there is no run in it"),
        (["report", "nowhere"], "there is no run in it"),
        (["coverage", "nowhere.yaml"], "No such file or directory"),
        (["audit"], "Missing argument"),
    ],
)
def test_commands_exit_with_2_and_one_message_when_the_input_is_bad(
    arguments: list[str], message: str
) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert result.stdout == "" or arguments[0] == "data"


def test_data_lists_every_registered_set() -> None:
    names = [row["name"] for row in json.loads(call("data", "--json").stdout)]
    assert names[:2] == ["digits", "cifar10"]
    assert "Data sets" in call("data").stdout


def test_data_draws_class_counts_and_gives_them_as_json(tmp_path: Path) -> None:
    picture = tmp_path / "below" / "digits.svg"
    result = call("data", "digits", "--clients", 5, "--limit", 200, "--picture", picture, "--json")
    found = json.loads(result.stdout)
    assert sum(found["clients"]["samples"]) == 200
    assert len(found["clients"]["class_counts"]) == 5
    assert "<svg" in picture.read_text()


def test_data_refuses_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    result = call("data", "digits", "--picture", tmp_path / "x.txt")
    assert result.exit_code == 2
    assert "but it cannot be written" in result.stderr


def test_methods_lists_every_part_with_its_source() -> None:
    rows = json.loads(call("methods", "--json").stdout)
    kinds = {row["kind"] for row in rows}
    assert kinds == {
        *("method", "policy", "objective", "estimator", "selector", "compression", "model", "dataset")
    }
    assert all(row["source"] for row in rows)
    assert "random-budget" in call("methods").stdout


def test_schema_is_json() -> None:
    assert "training" in json.loads(call("schema").stdout)["properties"]


def test_coverage_says_what_is_never_trained(config: Path) -> None:
    found = json.loads(call("coverage", config, "--set", "method.name=uniform", "--json").stdout)
    assert {"never_trained_fraction", "output_path_fraction", "parameters"} <= set(found)
    # One hidden layer of 8, width 0.5 keeps 4: half of its 64 x 8 weights and 8 biases, half of the 8 x 10
    # output weights; the 10 output biases are always trained.
    lost, total = 64 * 4 + 4 + 4 * 10, 64 * 8 + 8 + 8 * 10 + 10
    assert found["never_trained_fraction"] == pytest.approx(lost / total)


def test_coverage_notes_what_is_not_guaranteed(config: Path) -> None:
    result = call("coverage", config, "--set", "method.guarantee=false")
    assert "Every coordinate of the model can be trained" in result.stdout
    assert "note: no client is certain to train more than width 0.4" in result.stderr


def test_run_says_what_it_will_cost_and_writes_nothing(tmp_path: Path) -> None:
    config, out = written(tmp_path / "run.yaml", RUN), tmp_path / "runs" / "a"
    result = call("run", config, "--out", out, "--dry-run")
    assert result.exit_code == 0, result.output
    assert re.search(r"a +│ new +│ 0/2 +│", result.stdout)
    assert "0 finished; about " in result.stdout
    (estimate,) = json.loads(call("run", config, "--out", out, "--dry-run", "--json").stdout)["runs"]
    assert estimate["state"] == "new"
    assert estimate["macs"] > 0
    assert estimate["bytes"] > 0
    assert estimate["seconds"] > 0
    assert not out.parent.exists()


def test_audit_reads_the_run(finished: tuple[Path, Result]) -> None:
    printed = json.loads(call("audit", finished[0], "--json").stdout)
    assert [run["run"] for run in printed["runs"]] == ["hasfl"]
    assert set(printed) == {"runs", "pooled", "summary", "sentence"}


def test_report_draws_the_run(
    finished: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("widthwise.report.build_report", build_report)
    page = tmp_path / "page.html"
    assert call("report", finished[0], "--out", page).stdout.strip() == str(page)
    assert "</html>" in page.read_text()


def test_study_runs_reports_and_skips(tmp_path: Path) -> None:
    study = {
        "title": "Tiny",
        "base": {key: value for key, value in RUN.items() if key != "method"} | {"training.rounds": 1},
        "methods": {
            "adaptive": {"method": RUN["method"]},
            "control": {"method": {"name": "random-budget", "matched_to": "adaptive"}},
            "diverges": {"method": {"name": "fedavg"}, "training.lr": 1e30, "training.clip_norm": None},
        },
    }
    file, out = written(tmp_path / "tiny.yaml", study), tmp_path / "out"
    first = call("study", file, "--out", out)
    assert first.exit_code == 1
    assert "diverges-s42: failed: client" in first.stderr
    assert "1 of 3 runs failed" in first.stderr
    assert f"report: {out / 'report.html'}" in first.stderr
    page = (out / "report.html").read_text()
    assert "<title>Tiny" in page
    assert "2 of 3 planned runs finished" in page
    assert "failed: client" in page
    control, adaptive = (load_run(out / f"{name}-s42") for name in ("control", "adaptive"))
    assert control.rounds["mean_width"].tolist() == pytest.approx(adaptive.rounds["mean_width"].tolist())

    shutil.rmtree(out / "diverges-s42")
    del study["methods"]["diverges"]
    again = call("study", written(file, study), "--out", out, "--json")
    assert again.exit_code == 0
    assert again.stderr.count("finished before, skipped") == 2
    assert [run["name"] for run in json.loads(again.stdout)["runs"]] == ["adaptive", "control"]


def test_main_prints_help_for_every_command() -> None:
    listed = call("--help").stdout
    for command in ("run", "study", "report", "audit", "coverage", "cost", "data", "methods", "schema"):
        assert re.search(rf"│ {command} ", listed), command
        assert call(command, "--help").exit_code == 0
