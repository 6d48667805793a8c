"""What a registered data set is: facts that are known without loading it, and how to load it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from widthwise.core.errors import ConfigError
from widthwise.core.seeds import SeedTree
from widthwise.tasks.dataset import Dataset, Signature
from widthwise.tasks.preparation import Preparation

Ints = npt.NDArray[np.int64]

DEFAULT_TEST_FRACTION = 0.2


@dataclass(frozen=True)
class Request:
    """What to load.

    Attributes:
        seeds: Root of the random choice of samples where ``limit`` or ``test_limit`` is set.
        data_dir: Folder of local Parquet files, which win over the hub.
        limit: Training samples to keep; all where None.
        test_limit: Test samples to keep; all where None.
        test_fraction: Share held out for the test where the set has no test split of its own (default 0.2).
        imbalance: Samples of the most frequent class for one of the rarest; as the set is where None.
        augment: Crop and flip training images.
        largest_ids: Keep only the samples of so many natural ids, those with most data.
    """

    seeds: SeedTree
    data_dir: Path | None = None
    limit: int | None = None
    test_limit: int | None = None
    test_fraction: float | None = None
    imbalance: float | None = None
    augment: bool = False
    largest_ids: int | None = None


@dataclass(frozen=True)
class Splits:
    """Training and test samples, and the number of each training sample's natural id (writer, role)."""

    train: Dataset
    test: Dataset
    ids: Ints | None = None


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """A data set that can be loaded by name.

    Attributes:
        name: Its registered name.
        signature: What a model must know about it.
        class_names: One name for each class.
        summary: One line that says what is in it.
        origin: Who made it, and what its samples look like.
        terms: Under which terms it may be used.
        id_name: What a natural id is ("writer", "role"); None where samples have none.
        has_test: It comes with a test split of its own.
        augmentable: A shifted or mirrored sample is still of its class.
        hub: Identifier on the Hugging Face hub; None where it is not held there in a form that can be read.
        folders: Names that its folder of local Parquet files may have; empty for bundled data.
    """

    name: str
    signature: Signature
    class_names: tuple[str, ...]
    summary: str
    origin: str
    terms: str
    id_name: str | None = None
    has_test: bool = True
    augmentable: bool = False
    hub: str | None = None
    folders: tuple[str, ...] = ()

    def load(self, request: Request) -> Splits:
        """Read the data set.

        Raises:
            ConfigError: if the request asks for something that this set does not have.
            DataError: if files are missing or damaged, or values are out of range.
        """
        if request.augment and not self.augmentable:
            raise ConfigError(
                f"augment is true, but a mirrored sample of {self.name} is not of its class any more. "
                "Remove augment."
            )
        if request.test_fraction is not None and self.has_test:
            raise ConfigError(
                f"test_fraction is {request.test_fraction}, but {self.name} has a test split of its own. "
                "Remove test_fraction (test_limit takes a part of the split)."
            )
        if request.imbalance is not None and self.signature.kind == "text":
            raise ConfigError(
                f"imbalance is {request.imbalance:g}, but the classes of {self.name} are the characters of a "
                "text, which cannot be thinned out one by one. Remove imbalance."
            )
        if request.largest_ids is not None and self.id_name is None:
            raise ConfigError(
                f"partition kind is 'natural', but the samples of {self.name} have no natural id. "
                "Choose 'dirichlet' or 'iid'."
            )
        splits = self.read(request)
        if not len(splits.test):
            raise ConfigError(
                f"test_fraction is {request.test_fraction or DEFAULT_TEST_FRACTION}, but that leaves no test "
                f"sample of {self.name}. Raise it."
            )
        return splits

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return self.signature.num_classes

    @property
    def preparation(self) -> Preparation | None:
        """How a raw sample becomes an input; None where the source does not say."""
        return None

    @abstractmethod
    def read(self, request: Request) -> Splits:
        """Read what ``request`` asks for, which has been checked."""


def subsample(labels: Ints, limit: int | None, request: Request, purpose: str) -> Ints:
    """Return the positions of the samples to keep: first thinned out by class, then ``limit`` at random.

    Args:
        labels: Class of every sample that there is, [rows].
        limit: How many to keep at most; all where None.
        request: Its ``imbalance`` and ``seeds``.
        purpose: Name of the random streams.
    """
    kept = thin(labels, request.imbalance, request.seeds.at(f"{purpose}-imbalance").numpy())
    return kept[choose(len(kept), limit, request.seeds.at(purpose).numpy())]


def thin(labels: Ints, imbalance: float | None, rng: np.random.Generator) -> Ints:
    """Return positions, ascending, with a long tail: class 0 is the most frequent, the last the rarest.

        kept_c = round(count_c * imbalance ** (-c / (C - 1))),   at least 1 of a class that there is

    Source: the long-tailed sets of Cui et al., "Class-Balanced Loss Based on Effective Number of Samples",
    CVPR 2019, section 5.1 (exponential profile). Departs: they keep the test set balanced; here it is thinned
    out alike, as the test part of a set that is imbalanced by nature (EMNIST ByClass) would be.

    Args:
        labels: [rows].
        imbalance: Ratio of the first class's share to the last one's; None keeps everything.
        rng: Draws the samples of each class.

    Example:
        >>> labels = np.repeat([0, 1, 2], 100)
        >>> np.bincount(labels[thin(labels, 4.0, np.random.default_rng(0))])
        array([100,  50,  25])
    """
    if imbalance is None:
        return np.arange(len(labels))
    counts = np.bincount(labels)
    share = imbalance ** -np.linspace(0, 1, len(counts))
    quota = np.where(counts, np.maximum(np.rint(counts * share), 1), 0).astype(np.int64)
    kept = [
        rng.permutation(np.flatnonzero(labels == label))[:most] for label, most in enumerate(quota.tolist())
    ]
    return np.sort(np.concatenate(kept))


def choose(count: int, limit: int | None, rng: np.random.Generator) -> Ints:
    """Return ``limit`` of ``count`` positions (all where None), drawn without replacement, ascending.

    Classes are not forced into proportion: a small sample is what a small data set would be.
    """
    if limit is None or limit >= count:
        return np.arange(count)
    return np.sort(rng.permutation(count)[:limit])


def largest(ids: Ints, count: int, source: Source) -> npt.NDArray[np.bool_]:
    """Return which samples belong to the ``count`` ids with most samples (ties: ids in order)."""
    sizes = np.bincount(ids)
    check_enough_ids(count, len(sizes), source)
    return np.isin(ids, np.argsort(-sizes, kind="stable")[:count])


def check_enough_ids(count: int, known: int, source: Source) -> None:
    """Refuse more clients than natural ids.

    Raises:
        ConfigError: if ``count`` exceeds ``known``.
    """
    if count > known:
        raise ConfigError(
            f"clients is {count}, but {source.name} has {known} {source.id_name}s for a natural partition. "
            f"Set clients to at most {known}."
        )


def hold_out(ids: Ints, fraction: float | None, name: str) -> tuple[Ints, Ints]:
    """Return positions of training and test samples, drawn within each id, each in ascending order.

    The same share of every id is held out (rounded down, so no id loses all its training samples). The draw
    depends on the data set alone and not on a run's seed: all runs are tested on the same samples.
    """
    rng = SeedTree(0).at("hold-out", name).numpy()
    held = np.zeros(len(ids), dtype=bool)
    for each in np.unique(ids):
        members = rng.permutation(np.flatnonzero(ids == each))
        held[members[: int(len(members) * (fraction or DEFAULT_TEST_FRACTION))]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)
