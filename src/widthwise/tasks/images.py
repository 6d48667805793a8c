"""Image sets that are tables of encoded images and labels."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from PIL import Image

from widthwise.core.errors import DataError
from widthwise.tasks.dataset import ArraySet
from widthwise.tasks.preparation import Preparation, of_images
from widthwise.tasks.source import Ints, Request, Source, Splits, hold_out, largest, subsample
from widthwise.tasks.tables import Table, read_table


@dataclass(frozen=True, kw_only=True)
class ImageSource(Source):
    """A table of images: everything about such a set is in these fields.

    Attributes:
        mean: Of each channel over the training images, in units of a byte (0..255).
        std: Of each channel.
        image_columns: Names that the image column may have.
        label_columns: Names that the label column may have.
        id_column: Column of natural ids.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    image_columns: tuple[str, ...] = ("image",)
    label_columns: tuple[str, ...] = ("label",)
    id_column: str | None = None

    @property
    def preparation(self) -> Preparation:
        """Normalisation of bytes; an encoded image is converted by PIL to mode L or RGB before."""
        return of_images(self.signature.shape, self.mean, self.std)

    def read(self, request: Request) -> Splits:
        """Read the tables, choose the rows, and decode only these."""
        table = self._table("train", request)
        rows, ids = np.arange(len(table)), None
        if self.id_column is not None:
            ids = np.unique(table.texts("id"), return_inverse=True)[1]
            if request.largest_ids is not None:
                rows = np.flatnonzero(largest(ids, request.largest_ids, self))
        if self.has_test:
            test_table = self._table("test", request)
            test_rows = np.arange(len(test_table))
        else:
            test_table = table
            strata = np.zeros(len(table), dtype=np.int64) if ids is None else ids
            kept, held = hold_out(strata[rows], request.test_fraction, self.name)
            rows, test_rows = rows[kept], rows[held]
        labels, test_labels = table.labels(self.num_classes), test_table.labels(self.num_classes)
        rows = rows[subsample(labels[rows], request.limit, request, "limit")]
        test_rows = test_rows[subsample(test_labels[test_rows], request.test_limit, request, "test-limit")]
        return Splits(
            self._array_set(table, rows, labels[rows], request.augment),
            self._array_set(test_table, test_rows, test_labels[test_rows], augment=False),
            None if ids is None else ids[rows],
        )

    def _table(self, split: str, request: Request) -> Table:
        columns = {"image": self.image_columns, "label": self.label_columns}
        if self.id_column is not None:
            columns["id"] = (self.id_column,)
        return read_table(self.name, split, columns, self.folders, self.hub, request.data_dir)

    def _array_set(self, table: Table, rows: Ints, labels: Ints, augment: bool) -> ArraySet:
        return ArraySet(
            name=self.name,
            signature=self.signature,
            class_names=self.class_names,
            values=torch.from_numpy(decode(table, rows, self.signature.shape)),
            targets=torch.from_numpy(labels),
            mean=self.mean,
            std=self.std,
            augment=augment,
        )


def decode(table: Table, rows: Ints, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Return the images in ``rows`` of a table's column ``image``, uint8 [rows, C, H, W].

    Raises:
        DataError: if an image is missing, cannot be decoded or has another size; it names the row.
    """
    channels, height, width = shape
    encoded = table.data["image"].take(pa.array(rows)).combine_chunks()
    if pa.types.is_struct(encoded.type):
        encoded = encoded.field("bytes")
    images = np.empty((len(rows), height, width, channels), dtype=np.uint8)
    for image, row, each in zip(images, rows, encoded, strict=True):
        image[:] = _pixels(
            each.as_py(), "L" if channels == 1 else "RGB", f"image in row {row} of {table.where}", shape
        )
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _pixels(encoded: Any, mode: str, what: str, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    channels, height, width = shape
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            size, pixels = image.size, np.asarray(image.convert(mode))
    except (OSError, SyntaxError, ValueError, TypeError) as error:
        count = len(encoded) if isinstance(encoded, bytes) else 0
        raise DataError(
            f"{what} is {count} bytes long, but it cannot be decoded ({type(error).__name__}). "
            "Fetch the file again."
        ) from error
    if size != (width, height):
        raise DataError(f"{what} is {size[0]}x{size[1]}, but it must be {width}x{height}. Resize the images.")
    return pixels.reshape(height, width, channels)
