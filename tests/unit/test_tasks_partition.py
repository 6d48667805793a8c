"""Partitions: each sample has one owner, presets and named partitioners, refusals."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from widthwise.core.errors import ConfigError
from widthwise.core.seeds import SeedTree
from widthwise.tasks.held import ListedPartition, Partition
from widthwise.tasks.partition import PartitionConfig, partition

LABELS = torch.arange(10).repeat(30)
IDS = np.arange(300) // 60


def divide(options: dict[str, Any], clients: int, seed: int = 42) -> Partition:
    config = TypeAdapter(PartitionConfig).validate_python(options)
    return partition(config, LABELS, IDS, clients, SeedTree(seed))


KINDS = [
    ({"kind": "iid"}, 7),
    ({"kind": "dirichlet", "alpha": 0.3}, 20),
    ({"kind": "natural"}, 5),
    ({"kind": "LinearPartitioner"}, 6),
    ({"kind": "SizePartitioner", "partition_sizes": [100, 150, 50]}, 3),
    (
        {
            "kind": "PathologicalPartitioner",
            "num_classes_per_partition": 2,
            "class_assignment_mode": "deterministic",
        },
        10,
    ),
    ({"kind": "ShardPartitioner", "num_shards_per_partition": 2}, 10),
    ({"kind": "DirichletPartitioner", "alpha": 0.5, "min_partition_size": 2}, 8),
    ({"kind": "NaturalIdPartitioner", "partition_by": "id"}, 5),
]


@pytest.mark.parametrize(("options", "clients"), KINDS, ids=lambda value: str(value))
def test_partition_gives_each_sample_to_one_client(options: dict[str, Any], clients: int) -> None:
    held = divide(options, clients)
    assert len(held) == clients
    assert sorted(held.indices.tolist()) == list(range(len(LABELS)))
    assert all(held.client(i).diff().gt(0).all() for i in range(clients))
    assert torch.equal(torch.cat([held.client(i) for i in range(clients)]), held.indices)


@pytest.mark.parametrize(
    "options", [{"kind": "iid"}, {"kind": "dirichlet", "alpha": 0.3}, {"kind": "LinearPartitioner"}]
)
def test_partition_depends_on_seed_alone(options: dict[str, Any]) -> None:
    assert divide(options, 6).digest() == divide(options, 6).digest()
    assert divide(options, 6).digest() != divide(options, 6, seed=43).digest()


def test_partition_keeps_natural_ids_together() -> None:
    held = divide({"kind": "natural"}, 5)
    assert [set(IDS[held.client(i).numpy()]) for i in range(5)] == [{i} for i in range(5)]


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**40), alpha=st.floats(0.3, 100), clients=st.integers(1, 10))
def test_class_counts_sum_to_sizes_and_class_totals(seed: int, alpha: float, clients: int) -> None:
    held = divide({"kind": "dirichlet", "alpha": alpha}, clients, seed)
    counts = held.class_counts(LABELS, 10, range(clients))
    assert counts.shape == (clients, 10)
    assert counts.sum(axis=0).tolist() == held.class_totals(LABELS, 10).tolist() == [30] * 10
    assert counts.sum(axis=1).tolist() == held.sizes().tolist()


def test_class_counts_counts_by_hand() -> None:
    held = ListedPartition(torch.tensor([0, 2, 3]), torch.tensor([0, 3, 1]))
    assert held.class_counts(torch.tensor([2, 0, 1, 2]), 3, [1, 0]).tolist() == [[1, 0, 0], [0, 0, 2]]


@pytest.mark.parametrize(("size", "clients"), [(7, 100), (300, 4), (1, 5), (60, 10)])
def test_pool_deals_its_samples_out_evenly_and_again(size: int, clients: int) -> None:
    held = divide({"kind": "pool", "size": size}, clients)
    mine = [held.client(i).tolist() for i in range(clients)]
    assert len(held) == clients
    assert held.sizes().tolist() == [size] * clients
    assert all(one == sorted(set(one)) and len(one) == size for one in mine)
    times = np.bincount(np.concatenate(mine), minlength=len(LABELS))
    assert times.max() - times.min() <= 1
    assert sorted(held.held().tolist()) == np.flatnonzero(times).tolist()
    counts = held.class_counts(LABELS, 10, range(clients))
    assert held.class_totals(LABELS, 10).tolist() == counts.sum(axis=0).tolist()
    assert held.digest() == divide({"kind": "pool", "size": size}, clients).digest()
    others = [divide({"kind": "pool", "size": size}, clients, 43), divide({"kind": "pool", "size": size}, 3)]
    assert held.digest() not in [other.digest() for other in others]


def test_digest_differs_when_only_the_cut_differs() -> None:
    indices = torch.arange(4)
    one, other = (ListedPartition(torch.tensor([0, cut, 4]), indices) for cut in (1, 2))
    assert one.digest() != other.digest()


def test_partition_survives_pickle() -> None:
    held = divide({"kind": "iid"}, 4)
    again = pickle.loads(pickle.dumps(held))
    assert again.digest() == held.digest()


@pytest.mark.parametrize(
    ("options", "clients", "message"),
    [
        ({"kind": "iid"}, 301, r"^clients is 301, but there are 300 training samples\. Set clients"),
        (
            {"kind": "dirichlet", "alpha": 0.001},
            50,
            r"cannot divide 300 samples so: The max number of attempts",
        ),
        ({"kind": "NaturalIdPartitioner", "partition_by": "id"}, 4, r"has 5 parts\. Set clients to 5"),
        (
            {"kind": "NaturalIdPartitioner", "partition_by": "writer"},
            4,
            r"cannot divide 300 samples so: .*writer",
        ),
        (
            {"kind": "DirichletPartitioner", "alpha": 0.01, "min_partition_size": 0},
            50,
            r"leaves client \d+ without a sample, but each client needs at least one",
        ),
        (
            {"kind": "DirichletPartitoner"},
            2,
            r"Did you mean 'DirichletPartitioner'\? Known: .*dirichlet.*iid",
        ),
        ({"kind": "DirichletPartitioner"}, 2, r"flwr-datasets refuses them: .*alpha.* Its options: .*alpha"),
        ({"kind": "LinearPartitioner", "bogus": 1}, 2, r"refuses them: .*bogus"),
        ({"kind": "Partitioner"}, 2, r"no such name is known"),
        ({"kind": "pool", "size": 301}, 2, r"size is 301, but the pool has 300 .* Lower it, or raise limit"),
    ],
)
def test_partition_refuses(options: dict[str, Any], clients: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        divide(options, clients)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "dirichlet"}, "alpha\n  Field required"),
        ({"kind": "dirichlet", "alpha": 0}, "greater than 0"),
        ({"kind": "dirichlet", "alpha": 1, "min_size": 0}, "greater than or equal to 1"),
        ({"kind": "iid", "alpha": 1}, "Extra inputs are not permitted"),
        ({"kind": ["iid"]}, "kind\n  Input should be a valid string"),
        ({"alpha": 1}, "kind\n  Field required"),
        ("iid", "should be a valid dictionary"),
    ],
)
def test_partition_config_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(PartitionConfig).validate_python(options)


def test_iid_cuts_as_flwr_datasets_does() -> None:
    named = divide({"kind": "IidPartitioner"}, 7)
    assert named.digest() == divide({"kind": "iid"}, 7).digest()
