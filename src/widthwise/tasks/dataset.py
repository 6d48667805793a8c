"""Data in memory: tensors that are read once, shared between processes and gathered by batch.

Legend: N samples, B batch, C channels, H height, W width, T characters of a token stream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, Self

import torch
from torch import Tensor

from widthwise.core.device import upload
from widthwise.core.errors import DataError

Kind = Literal["image", "text", "features"]


@dataclass(frozen=True)
class Signature:
    """What a model must know about a data set.

    Attributes:
        kind: ``image`` (float pixels), ``text`` (token ids) or ``features`` (float columns).
        shape: Shape of one input: (C, H, W), (characters,) or (columns,).
        num_classes: Number of classes; for text also the size of the vocabulary.
    """

    kind: Kind
    shape: tuple[int, ...]
    num_classes: int

    def example_inputs(self, batch: int) -> Tensor:
        """Return inputs [B, *shape] of the type that a batch has: zeros, or all tokens by turns.

        Tokens differ, since a model does too little with equal ones to be checked on them.
        """
        zeros = torch.zeros(batch, *self.shape)
        if self.kind != "text":
            return zeros
        return torch.arange(zeros.numel()).remainder(self.num_classes).view(zeros.shape)


@dataclass(frozen=True, eq=False)
class Dataset(ABC):
    """Samples in memory. Picklable; after ``share_()`` its tensors live in shared memory.

    The tensors are fields. A batch lies where they do, and is gathered there.

    Attributes:
        name: Name of the data set.
        signature: Kind, shape and number of classes.
        class_names: One name for each class.
    """

    name: str
    signature: Signature
    class_names: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return self.signature.num_classes

    @property
    def augmented(self) -> bool:
        """Whether a batch for training depends on random numbers."""
        return False

    @abstractmethod
    def __len__(self) -> int:
        """Return N."""

    @abstractmethod
    def labels(self) -> Tensor:
        """Return all targets, int64 [N]."""

    @abstractmethod
    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return inputs [B, *shape] and targets int64 [B] of the samples at ``indices`` (int64 [B]).

        ``generator`` allows random augmentation, where the data set was asked for it: training passes one,
        evaluation does not. It is one of the CPU, wherever the samples lie.
        """

    @abstractmethod
    def share_(self) -> None:
        """Move the tensors to shared memory, in place."""

    def to(self, device: torch.device) -> Self:
        """Return the data set with its tensors on a device; itself where they are there already."""
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        if all(value.device == device for value in tensors.values()):
            return self
        moved: dict[str, Any] = {name: value.to(device) for name, value in tensors.items()}
        return replace(self, **moved)


@dataclass(frozen=True, eq=False)
class ArraySet(Dataset):
    """Images as bytes, or rows of float features; normalised when a batch is gathered.

    Attributes:
        values: uint8 [N, C, H, W] for images, float32 [N, F] for features.
        targets: int64 [N].
        mean: Per channel or column, in the unit of ``values``; a batch is (values - mean) / std.
        std: Per channel or column.
        augment: Crop and flip at random when a batch is given a generator.

    Raises:
        DataError: if a value is NaN or infinite; it names the first such column and how many rows it spoils.
    """

    values: Tensor
    targets: Tensor
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: bool = False

    def __post_init__(self) -> None:
        if not self.values.is_floating_point():
            return
        bad = ~self.values.isfinite().flatten(1)
        if bad.any():
            column = int(bad.any(0).nonzero()[0])
            raise DataError(
                f"column {column} of {self.name!r} is not finite in {int(bad[:, column].sum())} of "
                f"{len(bad)} rows, but features must be finite numbers. Fill or drop those values."
            )

    @property
    def augmented(self) -> bool:
        """Whether images are cropped and flipped at random for training."""
        return self.augment

    def __len__(self) -> int:
        return len(self.targets)

    def labels(self) -> Tensor:
        """Return all targets, int64 [N]."""
        return self.targets

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return normalised float32 inputs and targets (see the base class)."""
        values = self.values[indices]
        if self.augment and generator is not None:
            values = crop_and_flip(values, generator)
        mean, std = self._moments
        return values.float().sub_(mean).div_(std), self.targets[indices]

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        shape, device = (1, -1, *(1,) * (self.values.dim() - 2)), self.values.device
        mean, std = (torch.tensor(moment, device=device) for moment in (self.mean, self.std))
        return mean.view(shape), std.view(shape)

    def share_(self) -> None:
        """Move the tensors to shared memory, in place."""
        share_(self.values, self.targets)


@dataclass(frozen=True, eq=False)
class TextSet(Dataset):
    """Next-character prediction on one token stream.

    A sample is a window of ``signature.shape[0]`` characters and the character after it. Windows are
    gathered for each batch; the stream is held once, whatever the number of windows.

    Attributes:
        tokens: uint8 [T].
        starts: int64 [N], where each window begins.
    """

    tokens: Tensor
    starts: Tensor

    def __len__(self) -> int:
        return len(self.starts)

    def labels(self) -> Tensor:
        """Return the character after each window, int64 [N]."""
        return self.tokens[self.starts + self.signature.shape[0]].long()

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return windows int64 [B, characters] and the next characters int64 [B]."""
        length = self.signature.shape[0]
        places = torch.arange(length + 1, device=self.tokens.device)
        window = self.tokens[self.starts[indices].unsqueeze(1) + places].long()
        return window[:, :length], window[:, length]

    def share_(self) -> None:
        """Move the tensors to shared memory, in place."""
        share_(self.tokens, self.starts)


def share_(*tensors: Tensor) -> None:
    """Move tensors to shared memory, in place."""
    for tensor in tensors:
        tensor.share_memory_()  # type: ignore[no-untyped-call]


def crop_and_flip(images_BCHW: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Return each image shifted by up to ``padding`` pixels (black border) and mirrored with probability 1/2.

    The usual CIFAR-10 augmentation (He et al. 2016, section 4.2), drawn for the whole batch at once.
    """
    (batch, _, height, width), device = images_BCHW.shape, images_BCHW.device
    padded = torch.nn.functional.pad(images_BCHW, (padding,) * 4)
    shifts = torch.randint(0, 2 * padding + 1, (2, batch, 1), generator=generator)
    chances = torch.rand(batch, 1, generator=generator)
    (top, left), mirrored = upload((shifts, chances < 0.5), device)
    sample, channel, row, column = (torch.arange(n, device=device) for n in images_BCHW.shape)
    columns = left + torch.where(mirrored, width - 1 - column, column)
    rows = top + row
    picks = sample.view(-1, 1, 1, 1), channel.view(1, -1, 1, 1)
    return padded[(*picks, rows.view(batch, 1, height, 1), columns.view(batch, 1, 1, width))]
