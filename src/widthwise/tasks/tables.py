"""Reading tables: a local folder of Parquet files first, then the Hugging Face hub.

Local files are read by pyarrow and not through ``datasets``, which would first copy each file to its own
cache; both give an Arrow table in which an image is its encoded bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from widthwise.core.errors import DataError

Columns = Mapping[str, tuple[str, ...]]  # meaning -> names that such a column may have

HOW = "Set WIDTHWISE_DATA or data_dir (--data-dir) to a folder that holds it."


@dataclass(frozen=True)
class Table:
    """Columns by meaning (``image``, ``label``), and where they were read, for messages."""

    where: str
    data: pa.Table

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def labels(self, num_classes: int) -> npt.NDArray[np.int64]:
        """Return the column ``label``.

        Raises:
            DataError: if a label is missing, not a whole number or not in 0..num_classes - 1.
        """
        column = self.data["label"]
        if not pa.types.is_integer(column.type) or column.null_count:
            raise DataError(
                f"label column of {self.where} is of type {column.type} with {column.null_count} missing "
                "values, but labels must be whole numbers without a gap. Correct the column."
            )
        labels: npt.NDArray[np.int64] = column.to_numpy().astype(np.int64)
        wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
        if len(wrong):
            raise DataError(
                f"label is {labels[wrong[0]]} in row {wrong[0]} of {self.where}, but labels must be in "
                f"0..{num_classes - 1} ({len(wrong)} rows are not). Correct the column."
            )
        return labels

    def texts(self, column: str) -> list[str]:
        """Return a column of strings.

        Raises:
            DataError: if it is of another type or has gaps.
        """
        values = self.data[column]
        if (
            not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type))
            or values.null_count
        ):
            raise DataError(
                f"{column} column of {self.where} is of type {values.type} with {values.null_count} missing "
                "values, but it must be strings without a gap. Correct the column."
            )
        return list(values.to_pylist())


def local_folder(folders: tuple[str, ...], data_dir: Path | None) -> Path | None:
    """Return the first of a data set's folders that exists below ``data_dir`` or ``WIDTHWISE_DATA``.

    Raises:
        DataError: if ``data_dir`` or ``WIDTHWISE_DATA`` names no folder.
    """
    root = data_dir or (Path(os.environ["WIDTHWISE_DATA"]) if os.environ.get("WIDTHWISE_DATA") else None)
    if root is None:
        return None
    if not root.is_dir():
        raise DataError(
            f"{'data_dir' if data_dir else 'WIDTHWISE_DATA'} is '{root}', but there is no such folder. "
            "Correct it."
        )
    return next((root / name for name in folders if (root / name).is_dir()), None)


def read_table(
    name: str, split: str, columns: Columns, folders: tuple[str, ...], hub: str | None, data_dir: Path | None
) -> Table:
    """Return the columns of one split of a data set, named by their meaning.

    Args:
        name: Name of the data set, for messages.
        split: ``train``, ``test``, or another file's name without ``.parquet``.
        columns: Meaning -> names that such a column may have.
        folders: Names that the data set's folder may have.
        hub: Identifier on the hub, if there is one.
        data_dir: Folder of folders; ``WIDTHWISE_DATA`` where None.

    Raises:
        DataError: if neither place has the split, or a file is damaged, empty or lacks a column.
    """
    folder = local_folder(folders, data_dir)
    if folder is not None:
        path = folder / f"{split}.parquet"
        data, where = _read_file(path), f"'{path}'"
    elif hub is not None:
        data, where = _read_hub(name, hub, split), f"hub data set '{hub}' ({split})"
    else:
        raise DataError(
            f"dataset is '{name}', but no folder of local files holds '{folders[0]}/{split}.parquet' and "
            f"the hub has no such data set in a form that can be read. {HOW}"
        )
    found = {
        meaning: next((each for each in names if each in data.column_names), None)
        for meaning, names in columns.items()
    }
    if None in found.values():
        needs = ", ".join(" or ".join(repr(each) for each in names) for names in columns.values())
        raise DataError(
            f"columns of {where} are {', '.join(map(repr, data.column_names))}, but {name} needs {needs}. "
            "Rename the columns."
        )
    if not data.num_rows:
        raise DataError(f"{where} has 0 rows, but {name} needs at least 1. Fetch the file again.")
    return Table(where, pa.table({meaning: data[column] for meaning, column in found.items()}))


def _read_file(path: Path) -> pa.Table:
    if not path.is_file():
        raise DataError(
            f"folder '{path.parent}' holds {sorted(each.name for each in path.parent.iterdir())}, but "
            f"'{path.name}' is needed. Add the file."
        )
    try:
        return pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> DataError:
    """Return the error for a file that is truncated or not Parquet at all."""
    reason = str(error).strip().rstrip(".")
    return DataError(
        f"'{path}' is {path.stat().st_size} bytes long, but it cannot be read as Parquet ({reason}). "
        "Fetch the file again."
    )


def _read_hub(name: str, hub: str, split: str) -> pa.Table:
    # Imported here: it takes seconds, and only the hub needs it.
    import datasets

    try:
        return datasets.load_dataset(hub, split=split).with_format("arrow")[:]
    except Exception as error:  # the hub's client raises errors of several libraries
        reason = next(iter(str(error).strip().splitlines()), "")
        raise DataError(
            f"dataset is '{name}', but no folder of local files holds it and '{hub}' could not be loaded "
            f"from the hub ({type(error).__name__}: {reason}). {HOW}"
        ) from error
