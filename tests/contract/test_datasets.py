"""Every registered data set keeps the same promises, on tables that the test writes."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from widthwise.core.seeds import SeedTree
from widthwise.tasks import DATASETS, ArraySet, Request, Splits, TextSet
from widthwise.tasks.images import ImageSource

NAMES = DATASETS.names()


def write_images(source: ImageSource, folder: Path, rows: int) -> None:
    """Write ``rows`` images of random pixels to each split that the set must have."""
    folder.mkdir(parents=True)
    channels, height, width = source.signature.shape
    for split in ("train", "test") if source.has_test else ("train",):
        rng = SeedTree(7).at(source.name, split).numpy()
        images = []
        for _ in range(rows):
            pixels = rng.integers(0, 256, (height, width, 3) if channels == 3 else (height, width), np.uint8)
            buffer = io.BytesIO()
            Image.fromarray(pixels).save(buffer, "PNG")
            images.append({"bytes": buffer.getvalue(), "path": None})
        columns: dict[str, object] = {
            source.image_columns[-1]: images,
            source.label_columns[-1]: [i % source.num_classes for i in range(rows)],
        }
        if source.id_column:
            columns[source.id_column] = [f"writer {i % 3}" for i in range(rows)]
        pq.write_table(pa.table(columns), folder / f"{split}.parquet")


def write_plays(folder: Path) -> None:
    """Write three roles, of 700, 500 and 300 characters."""
    folder.mkdir(parents=True)
    rows = [("A", "X", 300), ("A", "Y", 249), ("B", "X", 300), ("A", "X", 399), ("A", "Y", 250)]
    text = "To be, or not to be: that is the question.\n" * 20
    columns = [list(column) for column in zip(*rows, strict=True)]
    table = {"play": columns[0], "character": columns[1], "text": [text[:size] for size in columns[2]]}
    pq.write_table(pa.table(table), folder / "plays.parquet")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    for entry in DATASETS:
        if isinstance(entry.value, ImageSource):
            write_images(entry.value, root / entry.value.folders[-1], rows=70)
    write_plays(root / "shakespeare")
    return root


def load(name: str, data_dir: Path, seed: int = 42, **options: int | float) -> Splits:
    return DATASETS[name].value.load(Request(SeedTree(seed), data_dir, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_dataset_gives_batches_of_its_signature(name: str, data_dir: Path) -> None:
    for data in (splits := load(name, data_dir)).train, splits.test:
        inputs, targets = data.batch(torch.tensor([0, len(data) - 1, 1]))
        assert inputs.shape == (3, *data.signature.shape)
        assert inputs.dtype == data.signature.example_inputs(1).dtype
        assert targets.dtype == torch.int64
        assert torch.equal(targets, data.labels()[[0, len(data) - 1, 1]])
        assert len(data) == len(data.labels())
        assert 0 <= int(data.labels().min()) <= int(data.labels().max()) < data.num_classes
        assert len(data.class_names) == len(set(data.class_names)) == data.num_classes


@pytest.mark.parametrize("name", NAMES)
def test_dataset_limit_is_a_random_part_that_depends_on_the_seed(name: str, data_dir: Path) -> None:
    whole, one, again, other = (
        load(name, data_dir, seed, **options)  # type: ignore[arg-type]
        for seed, options in ((42, {}), (42, {"limit": 20}), (42, {"limit": 20}), (43, {"limit": 20}))
    )
    every = torch.arange(20)
    assert len(one.train) == len(other.train) == 20
    assert torch.equal(one.train.batch(every)[0], again.train.batch(every)[0])
    assert not torch.equal(one.train.batch(every)[0], other.train.batch(every)[0])
    assert torch.equal(whole.test.labels(), other.test.labels())
    assert len(load(name, data_dir, test_limit=5).test) == 5


@pytest.mark.parametrize("name", NAMES)
def test_dataset_survives_sharing_and_pickle(name: str, data_dir: Path) -> None:
    train = load(name, data_dir).train
    indices = torch.arange(len(train))
    before = train.batch(indices)
    train.share_()
    again = pickle.loads(pickle.dumps(train))
    assert all(torch.equal(a, b) for a, b in zip(before, again.batch(indices), strict=True))


@pytest.mark.parametrize("name", [name for name in NAMES if DATASETS[name].value.id_name])
def test_dataset_keeps_the_largest_ids(name: str, data_dir: Path) -> None:
    every, largest = load(name, data_dir), load(name, data_dir, largest_ids=2)
    assert every.ids is not None
    assert largest.ids is not None
    assert len(every.ids) == len(every.train)
    sizes = np.sort(np.bincount(every.ids))[::-1]
    assert np.sort(np.bincount(largest.ids)[np.unique(largest.ids)])[::-1].tolist() == sizes[:2].tolist()


@pytest.mark.parametrize("name", [name for name in NAMES if not DATASETS[name].value.has_test])
def test_dataset_holds_out_the_share_asked_for(name: str, data_dir: Path) -> None:
    small, large = (load(name, data_dir, test_fraction=fraction) for fraction in (0.4, 0.5))
    assert len(small.test) < len(large.test)
    assert len(small.train) > len(large.train)


@pytest.mark.parametrize("name", NAMES)
def test_dataset_says_what_it_is(name: str) -> None:
    source = DATASETS[name].value
    assert source.name == name
    assert all((source.summary, source.origin, source.terms))
    assert source.signature.num_classes == len(source.class_names)


@pytest.mark.parametrize("name", NAMES)
def test_dataset_says_how_raw_samples_become_inputs(name: str, data_dir: Path) -> None:
    """The code is run on what the model card calls raw samples, and gives the bits of a batch."""
    source = DATASETS[name].value
    assert source.preparation is not None
    scope: dict[str, Any] = {"np": np}
    exec(source.preparation.code, scope)
    test = load(name, data_dir).test
    chosen = torch.arange(5)
    inputs = test.batch(chosen)[0]
    if isinstance(test, ArraySet):
        raw: Any = test.values[chosen].numpy()
    else:
        assert isinstance(test, TextSet)
        characters = [*" ", *source.class_names[1:]]
        raw = ["longer\n" + "".join(characters[token] for token in row) for row in inputs.tolist()]
        raw[0] = raw[0].replace(" ", "\n")
    prepared = torch.from_numpy(scope["prepare"](raw))
    assert prepared.dtype == inputs.dtype
    assert torch.equal(prepared, inputs)
