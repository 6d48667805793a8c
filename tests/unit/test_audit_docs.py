"""The examples on the audit's page give what the page says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from typer.testing import CliRunner

from widthwise.audit import Clients, audit_csv
from widthwise.audit.csv_file import KEYS, NEEDED
from widthwise.audit.measure import pooled_table
from widthwise.audit.table import COLUMNS
from widthwise.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_audit_page_example_in_python_gives_what_it_prints():
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted >= 8
    assert result.failed == 0


def test_audit_page_example_table_gives_the_sentence_on_the_page(tmp_path):
    (table,) = re.findall(r"```csv\n(.*?)```", TEXT, re.S)
    (expected,) = re.findall(r"```text\n(.*?)```", TEXT, re.S)
    path = tmp_path / "clients.csv"
    path.write_text(table, encoding="utf-8")
    assert " ".join(expected.split()) == audit_csv(path).sentence
    printed = CliRunner().invoke(app, ["audit", "--table", str(path)]).stdout
    assert " ".join(printed.split()).endswith(" ".join(expected.split()))


def test_audit_page_names_every_column_and_key():
    named = set(re.findall(r"`(\w+)`", TEXT))
    table = pooled_table([Clients([1, 2, 3, 5], [1, 1, 2, 2], [1, 3, 2, 4])], permutations=1, bootstrap=1)
    explained = {"p_values", "tests", "reasons", "clients", "spearman"}  # their names say it
    assert set(table.to_json()) - explained <= named
    assert {*COLUMNS, *NEEDED, "width", *KEYS, *table.power.to_json()} - {"alpha"} <= named
