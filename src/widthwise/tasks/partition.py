"""Which training samples each client holds: any flwr-datasets partitioner, by name or preset."""

from __future__ import annotations

import contextlib
import hashlib
import io
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from torch import Tensor

from widthwise.core.errors import ConfigError, unknown_name
from widthwise.core.seeds import SeedTree
from widthwise.tasks.dataset import share_

if TYPE_CHECKING:
    from flwr_datasets.partitioner import Partitioner

Ints = npt.NDArray[np.int64]
Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Partition:
    """Sample indices of each client, in compressed rows: two tensors, whatever the number of clients.

    Attributes:
        offsets: int64 [N + 1]; client i holds ``indices[offsets[i]:offsets[i + 1]]``.
        indices: int64 [samples], ascending within a client.
    """

    offsets: Tensor
    indices: Tensor

    def __len__(self) -> int:
        """Return the number of clients."""
        return len(self.offsets) - 1

    def client(self, client_id: int) -> Tensor:
        """Return the sample indices of one client (a view)."""
        return self.indices[self.offsets[client_id] : self.offsets[client_id + 1]]

    def sizes(self) -> Tensor:
        """Return the number of samples of each client, int64 [N]."""
        return self.offsets.diff()

    def class_counts(self, labels: Tensor, num_classes: int) -> npt.NDArray[np.int64]:
        """Return how many samples of each class each client holds, int64 [N, classes]."""
        owner = torch.repeat_interleave(torch.arange(len(self)), self.sizes())
        cells = owner * num_classes + labels[self.indices]
        counts = torch.bincount(cells, minlength=len(self) * num_classes)
        return counts.view(len(self), num_classes).numpy()

    def digest(self) -> str:
        """Return a SHA-256 that two partitions share only if every client holds the same samples."""
        parts = (self.offsets.numpy().tobytes(), self.indices.numpy().tobytes())
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def share_(self) -> None:
        """Move the tensors to shared memory, in place."""
        share_(self.offsets, self.indices)


class Options(BaseModel, ABC):
    """A kind of partition and its options."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def divide(self, columns: Columns, num_clients: int, seed: int) -> list[Ints]:
        """Return the positions of each client in ``columns`` (``label``, and ``id`` where there is one).

        Raises:
            ConfigError: if these samples cannot be divided so.
        """


class ByPartitioner(Options):
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


class Iid(Options):
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


PRESETS: dict[str, type[Options]] = {"dirichlet": Dirichlet, "iid": Iid, "natural": Natural}


def _tag(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) and kind in PRESETS else "partitioner"


PartitionConfig = Annotated[
    Annotated[Dirichlet, Tag("dirichlet")]
    | Annotated[Iid, Tag("iid")]
    | Annotated[Natural, Tag("natural")]
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
    if num_clients > len(labels):
        raise ConfigError(
            f"clients is {num_clients}, but there are {len(labels)} training samples. "
            "Set clients to at most that, or raise limit."
        )
    order = seeds.at("partition", "order").numpy().permutation(len(labels))
    columns: Columns = {"label": labels.numpy()[order]} | ({} if ids is None else {"id": ids[order]})
    parts = options.divide(columns, num_clients, seeds.at("partition").seed())
    if len(parts) != num_clients:
        raise ConfigError(
            f"clients is {num_clients}, but the {options.model_dump()} partition has {len(parts)} parts. "
            f"Set clients to {len(parts)} or change the partition's options."
        )
    sizes = np.array([len(part) for part in parts])
    if not sizes.all():
        raise ConfigError(
            f"partition {options.model_dump()} leaves client {int(sizes.argmin())} without a sample, but "
            "each client needs at least one. Use fewer clients, more samples or a larger alpha."
        )
    held = np.concatenate([np.sort(order[part]) for part in parts])
    return Partition(torch.from_numpy(np.cumsum([0, *sizes])), torch.from_numpy(held))
