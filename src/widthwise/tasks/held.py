"""Who holds which training samples: stored client by client, or computed from a rule."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from widthwise.tasks.dataset import share_

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Partition(ABC):
    """Sample indices of each client. Legend: N clients."""

    @abstractmethod
    def __len__(self) -> int:
        """Return N."""

    @abstractmethod
    def client(self, client_id: int) -> Tensor:
        """Return the sample indices of one client, int64 [n_i], ascending."""

    @abstractmethod
    def sizes(self) -> Tensor:
        """Return the number of samples of each client, int64 [N]."""

    @abstractmethod
    def held(self) -> Tensor:
        """Return the indices of the samples that anybody holds, each once, int64."""

    @abstractmethod
    def class_totals(self, labels: Tensor, num_classes: int) -> Ints:
        """Return how many samples of each class all clients hold together, int64 [classes]."""

    @abstractmethod
    def digest(self) -> str:
        """Return a SHA-256 that two partitions share only if every client holds the same samples."""

    @abstractmethod
    def share_(self) -> None:
        """Move the tensors to shared memory, in place."""

    def class_counts(self, labels: Tensor, num_classes: int, clients: Iterable[int]) -> Ints:
        """Return how many samples of each class the given clients hold, int64 [clients, classes]."""
        rows = [torch.bincount(labels[self.client(i)], minlength=num_classes) for i in clients]
        return torch.stack(rows).numpy()


@dataclass(frozen=True, eq=False)
class ListedPartition(Partition):
    """Every sample has one owner, in compressed rows: two tensors, whatever the number of clients.

    Attributes:
        offsets: int64 [N + 1]; client i holds ``indices[offsets[i]:offsets[i + 1]]``.
        indices: int64 [samples], ascending within a client.
    """

    offsets: Tensor
    indices: Tensor

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def client(self, client_id: int) -> Tensor:
        """Return the sample indices of one client (a view)."""
        start, end = self.offsets[client_id : client_id + 2].tolist()  # plain numbers slice in half the time
        return self.indices[start:end]

    def sizes(self) -> Tensor:
        """Return the number of samples of each client, int64 [N]."""
        return self.offsets.diff()

    def held(self) -> Tensor:
        """Return the indices of the samples that anybody holds, client by client."""
        return self.indices

    def class_totals(self, labels: Tensor, num_classes: int) -> Ints:
        """Return how many samples of each class all clients hold together, int64 [classes]."""
        return torch.bincount(labels[self.indices], minlength=num_classes).numpy()

    def digest(self) -> str:
        """Return a SHA-256 of offsets and indices."""
        return _sha256(self.offsets, self.indices)

    def share_(self) -> None:
        """Move the tensors to shared memory, in place."""
        share_(self.offsets, self.indices)


@dataclass(frozen=True, eq=False)
class PooledPartition(Partition):
    """Clients share a pool of samples, and who holds which is computed: no memory grows with the clients.

    The pool lies in a ring, in the order of ``order``; client i holds the ``size`` samples from place
    ``i * size`` on. Samples are dealt out evenly, and dealt again once all are.

    Attributes:
        order: int64 [samples], a permutation.
        size: Samples of each client, at most those of the pool.
        num_clients: N.

    Example:
        >>> held = PooledPartition(torch.tensor([2, 0, 1]), size=2, num_clients=1000)
        >>> held.client(0).tolist(), held.client(1).tolist(), held.client(999).tolist()
        ([0, 2], [1, 2], [0, 2])
    """

    order: Tensor
    size: int
    num_clients: int

    def __len__(self) -> int:
        return self.num_clients

    def client(self, client_id: int) -> Tensor:
        """Return the sample indices of one client."""
        places = torch.arange(client_id * self.size, (client_id + 1) * self.size)
        return self.order[places % len(self.order)].sort().values

    def sizes(self) -> Tensor:
        """Return the number of samples of each client, int64 [N] (one number, seen N times)."""
        return torch.tensor(self.size).expand(self.num_clients)

    def held(self) -> Tensor:
        """Return the indices of the samples that anybody holds, each once."""
        return self.order[: self.num_clients * self.size]

    def class_totals(self, labels: Tensor, num_classes: int) -> Ints:
        """Return how many samples of each class all clients hold together, int64 [classes]."""
        times, rest = divmod(self.num_clients * self.size, len(self.order))
        whole, part = (
            torch.bincount(labels[o], minlength=num_classes) for o in (self.order, self.order[:rest])
        )
        return (times * whole + part).numpy()

    def digest(self) -> str:
        """Return a SHA-256 of the order, the size and the number of clients."""
        return _sha256(self.order, torch.tensor([self.size, self.num_clients]))

    def share_(self) -> None:
        """Move the order to shared memory, in place."""
        share_(self.order)


def _sha256(*tensors: Tensor) -> str:
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()
