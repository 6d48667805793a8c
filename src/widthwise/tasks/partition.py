"""How training samples are divided: any flwr-datasets partitioner by name or preset, or a shared pool."""

from __future__ import annotations

import contextlib
import io
import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from torch import Tensor

from widthwise.core.errors import ConfigError, unknown_name
from widthwise.core.seeds import SeedTree
from widthwise.tasks.held import Ints, ListedPartition, Partition, PooledPartition

if TYPE_CHECKING:
    from flwr_datasets.partitioner import Partitioner

Columns = dict[str, npt.NDArray[Any]]


class Options(BaseModel, ABC):
    """A kind of partition and its options."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def deal(self, labels: Tensor, ids: Ints | None, num_clients: int, seeds: SeedTree) -> Partition:
        """Return who holds which sample (see ``partition``).

        Raises:
            ConfigError: if these samples cannot be divided so.
        """


class Division(Options):
    """A kind of partition that gives each sample to one client at most."""

    @abstractmethod
    def divide(self, columns: Columns, num_clients: int, seed: int) -> list[Ints]:
        """Return the positions of each client in ``columns`` (``label``, and ``id`` where there is one).

        Raises:
            ConfigError: if these samples cannot be divided so.
        """

    def deal(self, labels: Tensor, ids: Ints | None, num_clients: int, seeds: SeedTree) -> Partition:
        """Return who holds which sample; rows are shuffled before they are divided.

        Raises:
            ConfigError: if there are more clients than samples, a client would hold no sample, or these
                samples cannot be divided so.
        """
        if num_clients > len(labels):
            raise ConfigError(
                f"clients is {num_clients}, but there are {len(labels)} training samples. "
                "Set clients to at most that, or raise limit."
            )
        order = seeds.at("partition", "order").numpy().permutation(len(labels))
        columns: Columns = {"label": labels.numpy()[order]} | ({} if ids is None else {"id": ids[order]})
        parts = self.divide(columns, num_clients, seeds.at("partition").seed())
        if len(parts) != num_clients:
            raise ConfigError(
                f"clients is {num_clients}, but the {self.model_dump()} partition has {len(parts)} parts. "
                f"Set clients to {len(parts)} or change the partition's options."
            )
        sizes = np.array([len(part) for part in parts])
        if not sizes.all():
            raise ConfigError(
                f"partition {self.model_dump()} leaves client {int(sizes.argmin())} without a sample, but "
                "each client needs at least one. Use fewer clients, more samples or a larger alpha."
            )
        held = np.concatenate([np.sort(order[part]) for part in parts])
        return ListedPartition(torch.from_numpy(np.cumsum([0, *sizes])), torch.from_numpy(held))


class ByPartitioner(Division):
    """A kind of partition that a partitioner of flwr-datasets makes."""

    @abstractmethod
    def partitioner(self, num_clients: int, seed: int) -> Partitioner:
        """Return the flwr-datasets partitioner for so many clients."""

    def divide(self, columns: Columns, num_clients: int, seed: int) -> list[Ints]:
        """Return the positions that the partitioner gives to each client.

        The partitioners read rows one at a time in Python: some ten seconds for half a million samples.

        Raises:
            ConfigError: if the partitioner cannot do it.
        """
        import datasets

        built = self.partitioner(num_clients, seed)
        count = len(columns["label"])
        table = datasets.Dataset.from_dict({"position": np.arange(count), **columns})
        # Their retries are warnings and their progress goes to stderr: what counts is the error at the end.
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                built.dataset = table
                parts = (built.load_partition(i) for i in range(built.num_partitions))
                return [np.asarray(part["position"][:], dtype=np.int64) for part in parts]
            except (ValueError, KeyError, AssertionError, IndexError, TypeError) as error:
                raise ConfigError(
                    f"partition is {self.model_dump()}, but flwr-datasets cannot divide {count} "
                    f"samples so: {error} Use fewer clients, more samples or a milder skew (a larger alpha)."
                ) from error


class Iid(Division):
    """Equal parts (to one sample) of shuffled samples.

    The same parts as flwr-datasets' ``IidPartitioner``, cut at once: that one takes milliseconds for each
    client, and ten thousand clients are a use of this kind.
    """

    kind: Literal["iid"] = "iid"

    def divide(self, columns: Columns, num_clients: int, seed: int) -> list[Ints]:
        """Return equal runs of positions; they are random because rows are shuffled before."""
        return np.array_split(np.arange(len(columns["label"])), num_clients)


class Dirichlet(ByPartitioner):
    """Label skew: the shares of each class over the clients are drawn from a Dirichlet distribution.

    Source: Hsu, Qi, Brown, arXiv 1909.06335, and Yurochkin et al., arXiv 1905.12022. Without the balancing of
    the latter's code (``self_balancing``), so client sizes differ. The draw is repeated, at most ten times,
    until every client holds ``min_size`` samples.
    """

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(gt=0)
    min_size: int = Field(1, ge=1)

    def partitioner(self, num_clients: int, seed: int) -> Partitioner:
        """Return flwr-datasets' ``DirichletPartitioner``."""
        from flwr_datasets.partitioner import DirichletPartitioner

        return DirichletPartitioner(
            num_partitions=num_clients, partition_by="label", alpha=self.alpha,
            min_partition_size=self.min_size, self_balancing=False, seed=seed,
        )  # fmt: skip


class Pool(Options):
    """Any number of clients share the samples, each holding ``size`` of them (``PooledPartition``).

    For federations of more clients than samples: what a client costs in memory and its data are kept apart.
    """

    kind: Literal["pool"] = "pool"
    size: int = Field(ge=1)

    def deal(self, labels: Tensor, ids: Ints | None, num_clients: int, seeds: SeedTree) -> Partition:
        """Return the pool in a random order.

        Raises:
            ConfigError: if a client would hold more samples than there are.
        """
        if self.size > len(labels):
            raise ConfigError(
                f"partition.size is {self.size}, but the pool has {len(labels)} training samples. "
                "Lower it, or raise limit."
            )
        order = seeds.at("partition", "order").numpy().permutation(len(labels))
        return PooledPartition(torch.from_numpy(order), self.size, num_clients)


class Natural(ByPartitioner):
    """One client for each natural id (writer, role): those with most data, as many as there are clients."""

    kind: Literal["natural"] = "natural"

    def partitioner(self, num_clients: int, seed: int) -> Partitioner:
        """Return flwr-datasets' ``NaturalIdPartitioner``."""
        from flwr_datasets.partitioner import NaturalIdPartitioner

        return NaturalIdPartitioner(partition_by="id")


class Named(ByPartitioner):
    """Any flwr-datasets partitioner by its class name; its options are passed through.

    The number of clients and a seed are filled in where the class takes them. ``partition_by`` is ``label``
    unless it is given (``id`` is the natural id).
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: str

    def partitioner(self, num_clients: int, seed: int) -> Partitioner:
        """Return the partitioner of that name.

        Raises:
            ConfigError: if flwr-datasets has no partitioner of that name, or it refuses the options.
        """
        import inspect

        from flwr_datasets import partitioner as known

        names = [name for name in known.__all__ if name != "Partitioner"]
        if self.kind not in names:
            raise ConfigError(unknown_name("partition kind", self.kind, [*PRESETS, *names]))
        build = getattr(known, self.kind)
        defaults = {"num_partitions": num_clients, "partition_by": "label", "seed": seed}
        taken = inspect.signature(build).parameters
        options = {k: v for k, v in defaults.items() if k in taken} | (self.model_extra or {})
        try:
            return build(**options)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"partition kind is {self.kind!r} with options {self.model_extra}, but flwr-datasets refuses "
                f"them: {error} Its options: {', '.join(taken)}."
            ) from error


PRESETS: dict[str, type[Options]] = {"dirichlet": Dirichlet, "iid": Iid, "natural": Natural, "pool": Pool}


def _tag(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) and kind in PRESETS else "partitioner"


PartitionConfig = Annotated[
    Annotated[Dirichlet, Tag("dirichlet")]
    | Annotated[Iid, Tag("iid")]
    | Annotated[Natural, Tag("natural")]
    | Annotated[Pool, Tag("pool")]
    | Annotated[Named, Tag("partitioner")],
    Discriminator(_tag),
]


def partition(
    options: Options,
    labels: Tensor,
    ids: Ints | None,
    num_clients: int,
    seeds: SeedTree,
) -> Partition:
    """Return who holds which sample. A partitioner may leave samples to nobody (``PathologicalPartitioner``).

    Rows are shuffled before they are handed to the partitioner, so that those which cut the data into runs
    (iid, size, linear, ...) depend on the seed as well.

    Args:
        options: Kind of partition and its options.
        labels: int64 [samples].
        ids: Number of the natural id of each sample, where the data set has one.
        num_clients: Number of clients.
        seeds: Root of the random draws; uses ``seeds.at("partition")``.

    Raises:
        ConfigError: if there are more clients than samples, the partitioner cannot do it, or a client would
            hold no sample.
    """
    return options.deal(labels, ids, num_clients, seeds)
