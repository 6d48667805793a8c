"""Tasks built from configurations, on the bundled digits."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from widthwise.core.errors import ConfigError
from widthwise.tasks import CapacityConfig, Task, TaskConfig, build_task

DIGITS: dict[str, Any] = {
    "dataset": "digits",
    "model": "cnn-small",
    "norm": "none",
    "clients": 20,
    "partition": {"kind": "dirichlet", "alpha": 0.3},
}


def task_of(seed: int = 42, **changes: Any) -> Task:
    return build_task(TaskConfig.model_validate(DIGITS | changes), CapacityConfig(), seed)


@pytest.mark.parametrize("seed", [42, 43, 44])
def test_build_task_makes_twenty_clients_of_digits(seed: int) -> None:
    task = task_of(seed)
    assert (len(task.train), len(task.test)) == (1437, 360)
    assert task.num_clients == 20
    assert task.class_counts().sum() == 1437
    assert task.capacities.mean() == pytest.approx(0.525)
    assert task.tiers == (0.25, 0.5, 0.75, 1.0)
    assert task.build_model(seed)(task.example_inputs(3)).shape == (3, 10)


def test_build_task_depends_on_seed_alone() -> None:
    first, again, other = task_of(42), task_of(42), task_of(43)
    assert first.partition.digest() == again.partition.digest() != other.partition.digest()
    assert np.array_equal(first.capacities, again.capacities)
    assert torch.equal(first.test.labels(), other.test.labels())


def test_limit_keeps_random_samples_and_leaves_test_alone() -> None:
    one, other = task_of(42, limit=300, clients=5), task_of(43, limit=300, clients=5)
    assert len(one.train) == len(other.train) == 300
    assert not torch.equal(one.train.labels(), other.train.labels())
    assert torch.equal(one.test.labels(), task_of(42).test.labels())
    assert len(task_of(42, test_limit=50).test) == 50


def test_share_moves_data_to_shared_memory_and_keeps_it() -> None:
    task = task_of(limit=200, clients=4)
    before = task.train.batch(task.partition.client(1))
    task.train.share_()
    task.partition.share_()
    assert task.partition.indices.is_shared()
    after = pickle.loads(pickle.dumps(task)).train.batch(task.partition.client(1))
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_build_task_holds_ten_thousand_clients() -> None:
    # One process must be able to name far more clients than it trains at a time; see also the slow ones in
    # the docstring of partition().
    from widthwise.core.seeds import SeedTree
    from widthwise.tasks.partition import Iid, partition

    labels = task_of().train.labels().repeat(8)
    held = partition(Iid(), labels, None, 10_000, SeedTree(42))
    assert int(held.sizes().min()) == 1
    assert int(held.sizes().max()) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "digitz"}, r"dataset is 'digitz', but no such name is known\. Did you mean 'digits'"),
        ({"model": "cnn-smal"}, r"model is 'cnn-smal', but .*Did you mean 'cnn-small'"),
        (
            {"model": "lstm", "norm": None},
            r"the data is of kind 'image' and it takes text\. Choose one of: cnn",
        ),
        ({"model": "mlp"}, r"option of model 'mlp' is 'norm', but no such name is known\. .*Known: hidden"),
        (
            {"model": {"name": "cnn-small", "norm": "batch"}},
            r"task\.norm is 'none', but task\.model\.norm is 'batch'",
        ),
        (
            {"model": {"name": "cnn", "scale": 0}},
            r"model 'cnn': scale is 0, but input should be greater than 0",
        ),
        (
            {"model": {"name": "cnn", "scale": float("inf")}},
            r"model 'cnn': scale is inf, but input should be a finite number",
        ),
        ({"norm": "layer"}, "Input should be 'group', 'batch' or 'none'"),
        ({"clients": 0}, "greater than or equal to 1"),
        ({"client": 3}, "Extra inputs are not permitted"),
        ({"test_fraction": 1.0}, "less than 1"),
    ],
)
def test_task_config_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TaskConfig.model_validate(DIGITS | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"clients": 1438, "partition": {"kind": "iid"}},
            r"clients is 1438, but there are 1437 training samples",
        ),
        ({"limit": 10}, r"clients is 20, but there are 10 training samples"),
        (
            {"test_fraction": 0.9999},
            r"test_fraction is 0\.9999, but both parts of digits need a sample of each",
        ),
        ({"test_fraction": 1e-9}, r"test_fraction is 1e-09, but both parts of digits need a sample of each"),
        ({"augment": True}, r"augment is true, but a mirrored sample of digits is not of its class"),
        ({"partition": {"kind": "natural"}}, r"the samples of digits have no natural id\. Choose"),
    ],
)
def test_build_task_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task_of(**changes)


@pytest.mark.parametrize("hidden", [10**12, 10**30])
def test_build_model_refuses_what_does_not_fit_into_memory(hidden: int) -> None:
    spec = TaskConfig.model_validate(DIGITS | {"norm": None, "model": {"name": "mlp", "hidden": [hidden]}})
    with pytest.raises(ConfigError, match=rf"model is 'mlp' with .*{hidden}.*, but torch cannot build it \("):
        spec.model_spec().build(1)


def test_task_model_takes_options() -> None:
    config = TaskConfig.model_validate(
        DIGITS | {"norm": None, "model": {"name": "cnn", "scale": 0.5, "norm": "batch"}}
    )
    module = config.model_spec().build(1)
    assert [m.out_channels for m in module.modules() if isinstance(m, torch.nn.Conv2d)] == [
        32,
        32,
        64,
        64,
        128,
        128,
    ]
    assert sum(isinstance(m, torch.nn.BatchNorm2d) for m in module.modules()) == 6


@pytest.mark.parametrize(
    "partition",
    [
        {"kind": "iid"},
        {"kind": "dirichlet", "alpha": 0.3},
        {"kind": "LinearPartitioner"},
        {"kind": "ShardPartitioner", "shard_size": 5},
    ],
)
def test_task_config_survives_json(partition: dict[str, Any]) -> None:
    config = TaskConfig.model_validate(
        DIGITS | {"partition": partition, "model": {"name": "cnn", "scale": 0.5}}
    )
    assert TaskConfig.model_validate_json(config.model_dump_json()) == config


def test_task_config_has_a_schema_with_every_kind_of_partition() -> None:
    schema = TaskConfig.model_json_schema()
    assert {"Iid", "Dirichlet", "Natural", "Named"} <= set(schema["$defs"])
    assert schema["additionalProperties"] is False


def test_imbalance_thins_out_both_splits_in_label_order() -> None:
    # 1,437 + 360 digits, about 144 + 36 of each class; shares 1, .., 1/8.
    task = task_of(42, imbalance=8, clients=5)
    train, test = (torch.bincount(part.labels(), minlength=10) for part in (task.train, task.test))
    assert 135 <= train[0] <= 150
    assert 7.0 <= train[0] / train[9] <= 9.0
    assert all(train[:-1] >= train[1:])
    assert test.tolist() == sorted(test.tolist(), reverse=True)
    assert len(task_of(42, imbalance=8, limit=100, clients=5).train) == 100


def test_imbalance_is_refused_for_text() -> None:
    with pytest.raises(
        ConfigError, match=r"imbalance is 2, but the classes of shakespeare are the characters"
    ):
        task_of(
            42, dataset="shakespeare", model="lstm", norm=None, imbalance=2, partition={"kind": "natural"}
        )
