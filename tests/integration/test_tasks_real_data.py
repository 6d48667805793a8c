"""The real files: counts and contents that their README states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from widthwise.core.seeds import SeedTree
from widthwise.heterogeneity.label_divergence import label_divergence
from widthwise.tasks import DATASETS, CapacityConfig, Request, TaskConfig, build_task

pytestmark = pytest.mark.real_data


@pytest.mark.parametrize(
    ("name", "total", "test_total"), [("cifar10", 50_000, 10_000), ("dhcd", 78_200, 13_800)]
)
def test_real_images_have_balanced_classes_and_stated_mean(
    name: str, total: int, test_total: int, data_dir: Path
) -> None:
    source = DATASETS[name].value
    splits = source.load(Request(SeedTree(42), data_dir, limit=2000, test_limit=500))
    train = splits.train
    inputs, _ = train.batch(torch.arange(2000))
    # Classes are equally large in the whole set, so a random 2,000 hold each within 5 sd of 2,000 / K.
    expected = 2000 / source.num_classes
    counts = train.labels().bincount(minlength=source.num_classes)
    assert (counts - expected).abs().max() < 5 * np.sqrt(expected)
    # Normalised by the mean and sd of the whole set, so a random part is near 0 and 1.
    assert inputs.mean((0, 2, 3)).tolist() == pytest.approx([0] * source.signature.shape[0], abs=0.05)
    assert inputs.std((0, 2, 3)).tolist() == pytest.approx([1] * source.signature.shape[0], abs=0.05)


def test_real_femnist_divides_by_writer(data_dir: Path) -> None:
    config = TaskConfig.model_validate(
        {"dataset": "femnist", "model": "cnn", "clients": 28, "partition": {"kind": "natural"}}
    )
    task = build_task(config, CapacityConfig(), 42, data_dir)
    # 28 writers with 8 to 90 images, of each a fifth (rounded down) held out.
    assert len(task.train) + len(task.test) == 1761
    assert int(task.partition.sizes().min()) == 8 - 1
    assert int(task.partition.sizes().max()) == 90 - 18
    assert task.build_model(42)(task.train.batch(task.partition.client(0)[:2])[0]).shape == (2, 62)


def test_real_femnist_keeps_the_largest_writers(data_dir: Path) -> None:
    config = TaskConfig.model_validate(
        {"dataset": "femnist", "model": "mlp", "clients": 3, "partition": {"kind": "natural"}}
    )
    # The three largest of the README's list: f0027_29 with 90, f0155_13 with 89, f0010_18 with 88.
    assert sorted(build_task(config, CapacityConfig(), 42, data_dir).partition.sizes().tolist()) == [
        71,
        72,
        72,
    ]


def test_real_shakespeare_divides_by_role_in_time_order(data_dir: Path) -> None:
    config = TaskConfig.model_validate(
        {
            "dataset": "shakespeare",
            "model": "lstm",
            "clients": 20,
            "partition": {"kind": "natural"},
            "limit": 20_000,
        }
    )
    task = build_task(config, CapacityConfig(), 42, data_dir)
    assert len(task.train.tokens) == 680_588  # type: ignore[attr-defined]  # the README's total of twenty roles
    sizes = task.partition.sizes()
    assert int(sizes.sum()) == 20_000
    assert sizes.argmax() == 0  # HAMLET
    # A role of n characters gives floor(n / 5) - 80 test windows; the floors lose less than one each.
    assert len(task.test) == pytest.approx(680_588 / 5 - 20 * 80, abs=20)
    text = "".join(chr(32 + token) for token in task.train.tokens[:60].tolist())  # type: ignore[attr-defined]
    assert text.startswith("A little more than kin, and less than kind.")


def test_real_cifar10_dirichlet_is_skewed(data_dir: Path) -> None:
    config = TaskConfig.model_validate(
        {
            "dataset": "cifar10",
            "model": {"name": "cnn", "scale": 0.5},
            "partition": {"kind": "dirichlet", "alpha": 0.3},
            "limit": 2000,
            "test_limit": 100,
        }
    )
    skewed = label_divergence(build_task(config, CapacityConfig(), 42, data_dir).class_counts())
    even = label_divergence(
        build_task(
            TaskConfig.model_validate({**config.model_dump(), "partition": {"kind": "iid"}}),
            CapacityConfig(), 42, data_dir,
        ).class_counts()
    )  # fmt: skip
    assert skewed.mean() > 0.35 > 0.2 > even.mean()
