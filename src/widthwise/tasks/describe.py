"""What a data set is and where it would be read from, and a picture of who holds which classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from widthwise.tasks.datasets import DATASETS
from widthwise.tasks.tables import local_folder, unreadable


@dataclass(frozen=True)
class Description:
    """One data set as it would be loaded now; nothing is read but the files' footers.

    Attributes:
        name: Registered name.
        summary: One line that says what is in it.
        source: Who made it.
        terms: Under which terms it may be used.
        kind: ``image``, ``text`` or ``features``.
        shape: Shape of one input.
        class_names: One name for each class.
        natural_id: What a natural partition divides by; None where there is no such thing.
        place: ``local``, ``hub``, ``bundled`` or ``missing``.
        where: The folder or the hub's identifier; empty for bundled or missing data.
        rows: File -> rows, for local files.
    """

    name: str
    summary: str
    source: str
    terms: str
    kind: str
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    natural_id: str | None
    place: str
    where: str
    rows: dict[str, int]


def describe(name: str, data_dir: Path | None = None) -> Description:
    """Return what is known of a data set without loading it.

    Raises:
        ConfigError: if the name is unknown.
        DataError: if ``data_dir`` is no folder, or a file in it is not Parquet.
    """
    source = DATASETS[name].value
    folder = local_folder(source.folders, data_dir) if source.folders else None
    if not source.folders:
        place, where = "bundled", ""
    elif folder is not None:
        place, where = "local", str(folder)
    else:
        place, where = ("hub", source.hub) if source.hub else ("missing", "")
    return Description(
        name=name,
        summary=source.summary,
        source=source.origin,
        terms=source.terms,
        kind=source.signature.kind,
        shape=source.signature.shape,
        class_names=source.class_names,
        natural_id=source.id_name,
        place=place,
        where=where,
        rows={} if folder is None else {path.name: _rows(path) for path in sorted(folder.glob("*.parquet"))},
    )


def _rows(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error


def plot_class_counts(counts: npt.NDArray[np.int64], class_names: tuple[str, ...], path: Path) -> None:
    """Draw class counts per client as bubbles: one column a client, one row a class, area = samples.

    Args:
        counts: [N, classes].
        class_names: One name for each class; classes that nobody holds are left out.
        path: Where to write; the suffix chooses the format (.svg, .png, .pdf).
    """
    # Imported here: it takes a second. A Figure of its own leaves pyplot's global state alone.
    from matplotlib.figure import Figure

    held = np.flatnonzero(counts.sum(axis=0))
    clients, rows = counts.shape[0], len(held)
    figure = Figure(figsize=(2 + 0.28 * min(clients, 100), 1.4 + 0.19 * max(rows, 8)), layout="constrained")
    axes = figure.add_subplot()
    client_ids, classes = np.nonzero(counts[:, held])
    samples = counts[:, held][client_ids, classes]
    # The largest bubble just fits its cell: area in points^2 of a circle of 12 points across.
    axes.scatter(client_ids, classes, s=144 * samples / samples.max(), color="#2a6f97", linewidths=0)
    axes.set_yticks(range(rows), [class_names[each] for each in held], fontsize=7)
    axes.set_xticks(np.arange(clients) if clients <= 40 else np.linspace(0, clients - 1, 11).astype(int))
    axes.tick_params(axis="x", labelsize=7)
    axes.set(xlim=(-0.7, clients - 0.3), ylim=(rows - 0.3, -0.7), xlabel="client", ylabel="class")
    axes.set_title(
        f"{counts.sum():,} training samples; largest bubble {samples.max():,}", fontsize=9, loc="left"
    )
    axes.grid(color="#e5e5e5", linewidth=0.5)
    axes.set_axisbelow(True)
    figure.savefig(path)
