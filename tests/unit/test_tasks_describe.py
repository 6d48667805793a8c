"""What is said of a data set before it is loaded, and the picture of class counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from widthwise.core.errors import ConfigError, DataError
from widthwise.tasks import DATASETS
from widthwise.tasks.describe import describe, plot_class_counts


def test_describe_says_where_data_would_come_from(tmp_path: Path) -> None:
    (tmp_path / "dhcd").mkdir()
    pq.write_table(pa.table({"image": [b""] * 7}), tmp_path / "dhcd" / "train.parquet")
    places = {name: describe(name, tmp_path).place for name in DATASETS.names()}
    assert places == {
        "digits": "bundled",
        "cifar10": "hub",
        "fashion-mnist": "hub",
        "emnist": "missing",
        "femnist": "hub",
        "dhcd": "local",
        "shakespeare": "missing",
    }
    assert describe("dhcd", tmp_path).rows == {"train.parquet": 7}
    assert describe("femnist", tmp_path).where == "flwrlabs/femnist"


def test_describe_refuses_unknown_name_and_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"dataset is 'cifar', but no such name is known\. Did you mean 'cifar10'"
    ):
        describe("cifar")
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "train.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"train\.parquet' is 4 bytes long, but it cannot be read as Parquet"):
        describe("cifar10", tmp_path)


@pytest.mark.parametrize(("suffix", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_plot_class_counts_writes_each_format(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"counts.{suffix}"
    plot_class_counts(np.arange(20 * 62).reshape(20, 62), DATASETS["femnist"].value.class_names, path)
    assert path.read_bytes().startswith(magic)


def test_plot_class_counts_leaves_out_classes_that_nobody_holds(tmp_path: Path) -> None:
    counts = np.zeros((3, 95), dtype=np.int64)
    counts[:, [4, 60]] = 1  # '$' and the backslash among others must not be read as mathematics
    path = tmp_path / "counts.svg"
    plot_class_counts(counts, DATASETS["shakespeare"].value.class_names, path)
    svg = path.read_text()
    assert "<!-- $ -->" in svg
    assert "<!-- A -->" not in svg
    assert "6 training samples; largest bubble 1" in svg
