from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from widthwise.audit import audit_csv, audit_table
from widthwise.cli import app
from widthwise.core.errors import DataError, InputError

FAST = {"permutations": 99, "bootstrap": 50}
HEAD = "client,statistic,capacity,divergence"
ROWS = [f"c{i},{(7 * i) % 10 + 1},{(0.25, 0.5)[i % 2]},{i / 10}" for i in range(8)]


def write(tmp_path: Path, *lines: str, name: str = "clients.csv") -> Path:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_audit_csv_gives_what_audit_table_gives(tmp_path):
    report = audit_csv(write(tmp_path, HEAD, *ROWS), **FAST)
    cells = np.array([row.split(",")[1:] for row in ROWS], dtype=float).T
    assert report.runs[0].table == audit_table(*cells, **FAST)
    assert (report.runs[0].name, report.pooled, list(report.summary)) == ("clients", {}, ["clients"])
    assert report.sentence.startswith("In this run the statistic")


def test_audit_csv_takes_columns_in_any_order_and_ignores_others(tmp_path):
    plain = audit_csv(write(tmp_path, HEAD, *ROWS), **FAST)
    cells = [row.split(",") for row in ROWS]
    lines = [f"{d},x y, {statistic} ,,{capacity},{client}" for client, statistic, capacity, d in cells]
    path = tmp_path / "moved" / "clients.csv"
    path.parent.mkdir()
    # A mark at the start, Windows line ends, a blank line and spaces around a number: so spreadsheets write.
    text = "\r\n".join(["divergence,note,statistic,empty,capacity,client", *lines, "", ""])
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert audit_csv(path, **FAST) == plain


def test_audit_csv_takes_blank_lines_anywhere_and_spaces_around_names(tmp_path):
    plain = audit_csv(write(tmp_path, HEAD, *ROWS), **FAST)
    spaced = HEAD.replace(",", " , ")
    blank = ["", "  ", f" {spaced} ", *ROWS[:3], " ", *ROWS[3:], ",,,"]  # the last as spreadsheets write it
    assert audit_csv(write(tmp_path, *blank), **FAST) == plain
    with pytest.raises(DataError, match="statistic is 'x' on line 11 of"):
        audit_csv(write(tmp_path, "", HEAD, *ROWS, "z,x,1,1"))


def test_audit_csv_takes_names_of_columns_in_capitals_and_labels_as_they_stand(tmp_path):
    rows = [f"{row},{0.2 + i / 20}" for i, row in enumerate(ROWS)]
    plain = audit_csv(write(tmp_path, f"{HEAD},width", *rows), **FAST)
    assert audit_csv(write(tmp_path, f"{HEAD.title()},WIDTH", *rows), **FAST) == plain
    both = [f"{row},{run}" for row in ROWS for run in ("A", "a")] + ["C0,1,1,1,a"]
    runs = audit_csv(write(tmp_path, f"{HEAD},Run", *both), **FAST).runs
    assert [(run.seed, run.table.clients) for run in runs] == [("A", 8), ("a", 9)]


def test_audit_csv_takes_1_and_01_for_one_seed(tmp_path):
    rows = [f"{row},{('1', '01', '001')[i % 3]}" for i, row in enumerate(ROWS)]
    (run,) = audit_csv(write(tmp_path, f"{HEAD},seed", *rows), **FAST).runs
    assert (run.seed, run.table.clients) == (1, 8)


def test_audit_csv_reads_widths(tmp_path):
    rows = [f"{row},{0.2 + i / 20}" for i, row in enumerate(ROWS)]
    table = audit_csv(write(tmp_path, f"{HEAD},width", *rows), **FAST).runs[0].table
    assert table["r_width_divergence_given_capacity"].value is not None
    same = audit_csv(write(tmp_path, f"{HEAD},width", *(f"{row},0.5" for row in ROWS)), **FAST)
    assert same.sentence.startswith("Capacity cannot confound this run (every client trained the same width)")


@pytest.mark.parametrize(
    ("columns", "keys", "names", "seeds"),
    [
        ("seed", ("1", "2"), ["clients s1", "clients s2"], [1, 2]),
        ("run", ("a", "b"), ["clients a", "clients b"], ["a", "b"]),
        ("run,seed", ("a,1", "a,2"), ["clients a 1", "clients a 2"], ["a 1", "a 2"]),
    ],
)
def test_audit_csv_pools_runs_and_seeds(tmp_path, columns, keys, names, seeds):
    rows = [f"{row},{key}" for row in ROWS for key in keys]  # interleaved, with the same clients in both
    report = audit_csv(write(tmp_path, f"{HEAD},{columns}", *rows), **FAST)
    assert [run.name for run in report.runs] == names
    pooled = report.to_json()["pooled"]["clients"]
    assert (pooled["runs"], pooled["seeds"]) == (2, seeds)
    assert report.sentence.startswith("Over these 2 runs the statistic")


def test_audit_csv_says_that_a_confound_cannot_be_tested_when_capacity_is_constant(tmp_path):
    rows = [f"c{i},{i + 1 + i % 3},0.5,{i / 10}" for i in range(8)]
    report = audit_csv(write(tmp_path, HEAD, *rows), **FAST)
    assert report.sentence.startswith(
        "A capacity confound cannot be tested in this run (the capacity is the same for every client); "
        "the statistic is linked with label divergence (r = 0.9"
    )


def test_audit_csv_says_that_nothing_can_be_said_when_the_statistic_is_constant(tmp_path):
    rows = [f"c{i},1.0,{i % 2 + 1},{i / 10}" for i in range(8)]
    report = audit_csv(write(tmp_path, HEAD, *rows), **FAST)
    assert report.sentence == (
        "Nothing can be said of the statistic in this run: the statistic is the same for every client."
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["client,statistic,divergence", "a,1,2"],
            r"has the columns client, statistic, divergence, but capacity must be there too\. Name the "
            r"columns client, statistic, capacity, divergence in the first line, separated by commas\.",
        ),
        (
            [HEAD.replace(",", ";"), *ROWS],
            r"has the columns client;statistic;capacity;divergence, but client, ",
        ),
        (
            [HEAD.replace(",", "\t"), *ROWS],
            r"has the columns client\tstatistic\tcapacity\tdivergence, but client, ",
        ),
        ([""], "has the columns none, but client, statistic, capacity, divergence must be there too"),
        (
            [f"{HEAD},capacity", *ROWS],
            r"column capacity 2 times, but no two columns may share a name, in capitals or not\. Rename",
        ),
        ([f"{HEAD},CAPACITY", *(f"{row},1" for row in ROWS)], "has the column capacity 2 times"),
        ([HEAD], r"the number of clients in table .* is 0, but .* need at least 4\. Add clients\."),
        ([HEAD, *ROWS[:3]], "is 3, but correlations at fixed capacity need at least 4"),
        (
            [f"{HEAD},seed", *(f"{r},1" for r in ROWS), "z,1,1,1,2"],
            "the number of clients of run '2' in table .* is 1, but",
        ),
        (
            [HEAD, *ROWS, "z,high,1,1"],
            r"statistic is 'high' on line 10 of .*, but it must be a finite number",
        ),
        (
            [HEAD, *ROWS, "z,1,,1"],
            r"capacity is '' on line 10 of .*\. Mend the cell, or leave the client out\.",
        ),
        ([HEAD, *ROWS, "z,1,1,nan"], "divergence is 'nan' on line 10"),
        ([HEAD, *ROWS, "z,1e999,1,1"], "statistic is '1e999' on line 10"),
        ([HEAD, *ROWS, "z,1_5,1,1"], "statistic is '1_5' on line 10"),
        ([HEAD, *ROWS, 'z,"1,000",1,1'], "statistic is '1,000' on line 10"),
        ([HEAD, *ROWS, "z,1,-Inf,1"], "capacity is '-Inf' on line 10"),
        (
            [f"{HEAD},run", *(f"{row},a" for row in ROWS), "z,1,1,1,"],
            r"run is '' on line 10 of table .*, but every run needs a name\. Fill the cell\.",
        ),
        ([HEAD, *ROWS, ",1,1,1"], r"client is '' on line 10 of .*, but every client needs a name"),
        ([HEAD, *ROWS, "z,1,1"], r"line 10 of table .* is of 3 cells, but the first line names 4 columns"),
        ([HEAD, *ROWS, "z,1,1,1,9"], "is of 5 cells, but the first line names 4 columns"),
        (
            [HEAD, *ROWS, "c3,1,1,1"],
            r"client 'c3' is on lines 5 and 10 of table .*, but a client has one line per run\. Remove one,",
        ),
        (
            [f"{HEAD},seed", *(f"{r},1" for r in ROWS), "c0,1,1,1,1"],
            "client 'c0' of run '1' is on lines 2 and 10",
        ),
        (
            [HEAD, *ROWS, '"z,1,1,1', "y,1,1,1"],
            r"line 10 of table .* cannot be read \(unexpected end of data\), but a quotation mark that is ",
        ),
        (
            [HEAD, *ROWS, '"z,1,1,1', '"y",1,1,1'],
            r"line 10 of table .* cannot be read \(',' expected after '\"'\)",
        ),
        (
            [f"{HEAD},seed", *(f"{r},1" for r in ROWS), "c0,1,1,1,01"],
            "client 'c0' of run '1' is on lines 2 and 10",
        ),
    ],
)
def test_audit_csv_refuses_a_faulty_table(tmp_path, lines, message):
    with pytest.raises(DataError, match=message):
        audit_csv(write(tmp_path, *lines))


def test_audit_csv_refuses_what_is_no_text_file(tmp_path):
    path = tmp_path / "x.csv"
    with pytest.raises(
        DataError, match=r"cannot be read \(No such file or directory\), but it must be a CSV"
    ):
        audit_csv(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(
        DataError, match=r"cannot be read \(.*can't decode.*\), but it must be a CSV file in UTF-8"
    ):
        audit_csv(path)


def test_audit_csv_refuses_no_resamples(tmp_path):
    with pytest.raises(InputError, match="permutations is 0 and bootstrap is 1, but both must be at least 1"):
        audit_csv(write(tmp_path, HEAD, *ROWS), permutations=0, bootstrap=1)


def test_audit_command_prints_a_table_made_elsewhere_and_its_json(tmp_path):
    path = write(tmp_path, f"{HEAD},seed", *(f"{row},{seed}" for row in ROWS for seed in (1, 2)))
    printed = CliRunner().invoke(app, ["audit", "--table", str(path)])
    assert printed.exit_code == 0
    assert "mean of clients" in printed.stdout
    assert "t over 2 runs" in printed.stdout
    found = json.loads(CliRunner().invoke(app, ["audit", "--table", str(path), "--json"]).stdout)
    assert set(found) == {"runs", "pooled", "summary", "sentence"}
    assert [(run["run"], run["seed"], run["method"]) for run in found["runs"]] == [
        ("clients", 1, None),
        ("clients", 2, None),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audit"], "Missing argument: name run folders, or one CSV file with --table."),
        (["audit", "runs", "--table", "x.csv"], "Run folders and --table exclude each other"),
        (["audit", "--table", "nowhere.csv"], "table 'nowhere.csv' cannot be read"),
    ],
)
def test_audit_command_exits_with_2_when_the_input_is_bad(arguments, message):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert result.stdout == ""


def test_audit_command_of_a_table_loads_neither_torch_nor_the_report(tmp_path):
    # They take seconds, and a table of twenty clients is audited in a tenth of one.
    path = write(tmp_path, HEAD, *ROWS)
    heavy = (
        "torch",
        "pandas",
        "matplotlib",
        "scipy.stats",
        "datasets",
        "widthwise.engine",
        "widthwise.report",
    )
    program = (
        "import sys; from widthwise.cli import app; "
        f"app(['audit', '--table', {str(path)!r}], standalone_mode=False); "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"
