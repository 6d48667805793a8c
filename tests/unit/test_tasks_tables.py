"""Bad files: each gives one message that names the file and what to do."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from widthwise.core.errors import ConfigError, DataError
from widthwise.core.seeds import SeedTree
from widthwise.tasks import DATASETS, Request, Splits

ROWS = 6


def png(size: tuple[int, int] = (32, 32)) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((*size, 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def write(root: Path, **changes: Any) -> Path:
    """Write a good CIFAR-10 folder, with other columns where ``changes`` says so."""
    columns = {"img": [{"bytes": png()}] * ROWS, "label": list(range(ROWS))} | changes
    (root / "cifar10").mkdir(exist_ok=True)
    for split in ("train", "test"):
        table = pa.table({name: values for name, values in columns.items() if values is not None})
        pq.write_table(table, root / "cifar10" / f"{split}.parquet")
    return root


def load(root: Path | None, name: str = "cifar10", **options: Any) -> Splits:
    return DATASETS[name].value.load(Request(SeedTree(0), root, **options))


def images_with(row: int, encoded: bytes | None) -> list[dict[str, bytes | None]]:
    return [{"bytes": encoded if i == row else png()} for i in range(ROWS)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"img": None, "picture": ["x"] * ROWS},
            r"columns of '.*' are 'label', 'picture', but cifar10 needs 'img' or 'image', 'label'\. Rename",
        ),
        ({"label": [0, 1, 2, 10, 4, 11]}, r"label is 10 in row 3 of .* in 0\.\.9 \(2 rows are not\)"),
        ({"label": [0, 1, 2, -1, 4, 5]}, r"label is -1 in row 3"),
        ({"label": [0.0, float("nan"), 2.0, 3.0, 4.0, 5.0]}, r"label column .* type double with 0 missing"),
        ({"label": [0, None, 2, 3, 4, 5]}, r"label column of .* is of type int64 with 1 missing"),
        ({"label": list("abcdef")}, r"label column of .* is of type string"),
        ({"img": images_with(4, png()[:60])}, r"image in row 4 of .* is 60 bytes long, but it cannot"),
        ({"img": images_with(2, b"no image")}, r"image in row 2 of .* is 8 bytes long, .*Unidentified"),
        ({"img": images_with(5, None)}, r"image in row 5 of .* is 0 bytes long, but it cannot be decoded"),
        ({"img": images_with(1, png((8, 9)))}, r"image in row 1 of .* is 9x8, but it must be 32x32\. Resize"),
        ({"img": pa.array([], pa.binary()), "label": pa.array([], pa.int64())}, r"has 0 rows, but cifar10"),
    ],
)  # fmt: skip
def test_load_refuses_bad_columns(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(write(tmp_path, **changes))


def test_load_reads_good_files(tmp_path: Path) -> None:
    assert len(load(write(tmp_path)).train) == ROWS


def test_load_reads_plain_bytes(tmp_path: Path) -> None:
    assert len(load(write(tmp_path, img=[png()] * ROWS)).train) == ROWS


def test_load_decodes_only_chosen_rows(tmp_path: Path) -> None:
    chosen = SeedTree(0).at("limit").numpy().permutation(ROWS)[:2]
    spoilt = next(row for row in range(ROWS) if row not in chosen)
    root = write(tmp_path, img=images_with(spoilt, b""))
    write_test = pa.table({"img": [{"bytes": png()}] * ROWS, "label": [0] * ROWS})
    pq.write_table(write_test, root / "cifar10" / "test.parquet")
    assert len(load(root, limit=2).train) == 2


def test_load_refuses_truncated_file(tmp_path: Path) -> None:
    path = write(tmp_path) / "cifar10" / "train.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"train\.parquet' is \d+ bytes long, but it cannot .*\)\. Fetch"):
        load(tmp_path)


def test_load_refuses_damaged_pages(tmp_path: Path) -> None:
    path = write(tmp_path, label=list(range(ROWS))) / "cifar10" / "train.parquet"
    content = bytearray(path.read_bytes())
    content[4:300] = b"\xff" * 296
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=r"train\.parquet' is \d+ bytes long, but it cannot be read as Parquet"
    ):
        load(tmp_path)


def test_load_refuses_missing_split(tmp_path: Path) -> None:
    (write(tmp_path) / "cifar10" / "test.parquet").unlink()
    with pytest.raises(
        DataError, match=r"holds \['train\.parquet'\], but 'test\.parquet' is needed\. Add the file"
    ):
        load(tmp_path)


def test_load_refuses_missing_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DataError, match=r"^data_dir is '.*nowhere', but there is no such folder\. Correct it"
    ):
        load(tmp_path / "nowhere")
    monkeypatch.setenv("WIDTHWISE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"^WIDTHWISE_DATA is '.*nowhere', but there is no such folder"):
        load(None)


def test_load_takes_folder_of_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDTHWISE_DATA", str(write(tmp_path)))
    assert len(load(None).test) == ROWS


def test_load_says_where_it_looked_when_hub_is_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    with pytest.raises(
        DataError,
        match=r"^dataset is 'cifar10', but no folder of local files holds it and 'uoft-cs/cifar10' could not "
        r"be loaded from the hub \(.*\)\. Set WIDTHWISE_DATA or data_dir",
    ):
        load(tmp_path)


def test_load_says_so_when_there_is_no_hub_source(tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"^dataset is 'dhcd', but no folder of local files holds 'dhcd/train\.parquet' and the hub has",
    ):
        load(tmp_path, "dhcd")


def test_load_reads_hub_table_with_its_own_column_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # What the hub's client would return: the layout of flwrlabs/femnist, built in memory.
    buffer = io.BytesIO()
    Image.fromarray(np.full((28, 28), 255, np.uint8)).save(buffer, "PNG")
    table = datasets.Dataset.from_dict(
        {
            "image": [{"bytes": buffer.getvalue(), "path": None}] * 20,
            "writer_id": ["f0000_14"] * 10 + ["f0001_41"] * 10,
            "hsf_id": [0] * 20,
            "character": list(range(20)),
        },
        features=datasets.Features(
            image=datasets.Image(),
            writer_id=datasets.Value("string"),
            hsf_id=datasets.Value("int64"),
            character=datasets.ClassLabel(num_classes=62),
        ),
    )
    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda hub, split: asked.append((hub, split)) or table)
    splits = load(tmp_path, "femnist", largest_ids=2)
    assert asked == [("flwrlabs/femnist", "train")]
    assert (len(splits.train), len(splits.test)) == (16, 4)
    assert sorted(np.bincount(splits.ids).tolist()) == [8, 8]


def plays(root: Path, **changes: Any) -> Path:
    columns = {"play": ["P", "P"], "character": ["A", "B"], "text": ["a" * 200, "b" * 90]} | changes
    (root / "shakespeare").mkdir()
    pq.write_table(pa.table(columns), root / "shakespeare" / "plays.parquet")
    return root


def test_shakespeare_test_windows_share_no_character_with_training(tmp_path: Path) -> None:
    # Role A's halves of 100 characters give 20 windows each, role B's halves of 45 none.
    splits = load(plays(tmp_path), "shakespeare", test_fraction=0.5)
    assert (len(splits.train), len(splits.test)) == (20, 20)
    assert int(splits.train.starts.max()) + 80 < int(splits.test.starts.min())  # type: ignore[attr-defined]
    assert splits.ids.tolist() == [0] * 20


def test_shakespeare_joins_speeches_in_order_with_a_space_for_each_newline(tmp_path: Path) -> None:
    root = plays(tmp_path, character=["A", "A"], text=["x" * 100, "y\n" * 50])
    splits = load(root, "shakespeare", test_fraction=0.5)
    text = "".join(chr(32 + token) for token in splits.train.tokens.tolist())  # type: ignore[attr-defined]
    assert text == "x" * 100 + " " + "y " * 50


@pytest.mark.parametrize(
    ("changes", "options", "error", "message"),
    [
        ({"text": ["a" * 200, "é" * 90]}, {}, DataError, r"text of .* has the character 'é', but only"),
        ({"text": ["a" * 50, "b" * 90]}, {}, DataError, r"longest role of .* has 90 characters, but"),
        ({"text": [1, 2]}, {}, DataError, r"text column of .* is of type int64 with 0 missing"),
        ({"text": ["a" * 200, None]}, {}, DataError, r"text column of .* type string with 1 missing"),
        ({}, {"largest_ids": 3}, ConfigError, r"clients is 3, but shakespeare has 2 roles"),
        ({}, {"test_fraction": 0.1}, ConfigError, r"test_fraction is 0\.1, but that leaves no"),
    ],
)  # fmt: skip
def test_shakespeare_refuses(
    tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        load(plays(tmp_path, **changes), "shakespeare", **options)


def test_load_refuses_what_the_set_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"test_fraction is 0\.3, but cifar10 has a test split of its own\. Remove"
    ):
        load(write(tmp_path), test_fraction=0.3)
    with pytest.raises(ConfigError, match=r"the samples of cifar10 have no natural id"):
        load(tmp_path, largest_ids=2)
