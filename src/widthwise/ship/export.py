"""From a run folder to files that can be handed out."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from torch import nn

from widthwise.core.errors import CheckpointError, ConfigError
from widthwise.core.protocols import Samples
from widthwise.engine import RunResult
from widthwise.engine.environment import environment
from widthwise.engine.files import FolderLock, cannot_write, write_atomic, write_json, write_text
from widthwise.ship.card import card
from widthwise.ship.compare import compare
from widthwise.ship.formats import FORMATS, Format
from widthwise.ship.formats.format import Exportable
from widthwise.ship.manifest import CARD, MANIFEST, About, ExportedFile, about, read_manifest
from widthwise.ship.passport import Passport, Scores, probed, stretches
from widthwise.ship.trained import Trained, open_run
from widthwise.ship.widths import Slice, WidthResult, chosen_widths, slices


@dataclass(frozen=True)
class Exported:
    """What an export has written.

    Attributes:
        folder: The folder; its ``README.md`` is the model card, ``export.json`` the same as data.
        rounds_done: Rounds after which the parameters were saved.
        rounds: Rounds of the whole run.
        files: The new files, by width, then in the order of the formats that were asked for.
    """

    folder: Path
    rounds_done: int
    rounds: int
    files: tuple[ExportedFile, ...]

    @property
    def card(self) -> Path:
        """The model card."""
        return self.folder / CARD

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data."""
        files = [file.model_dump(mode="json") for file in self.files]
        return {
            "folder": str(self.folder),
            "rounds_done": self.rounds_done,
            "rounds": self.rounds,
            "files": files,
        }


def export(
    run: RunResult | Path | str,
    widths: float | Iterable[float] | None = None,
    formats: str | Iterable[str] = "safetensors",
    out: Path | str | None = None,
    *,
    data_dir: Path | str | None = None,
    model: nn.Module | None = None,
) -> Exported:
    """Write sub-models of a run as files, with a model card.

    A file holds what the run's method ships at a width, as a dense module with batch norms recalibrated: what
    ``evaluate`` measures. Each is loaded again and gives the sub-model's scores on test samples, in batches
    of 1, 2, 7 and 32, to 1e-5 (see ``ship.compare``), before any is put in place. Further exports of the same
    run may go into the same folder.

    Args:
        run: A run or its folder, finished or with a checkpoint, whose parameters are taken.
        widths: Any widths in (0, 1]; by default the run's tiers.
        formats: ``safetensors``, ``torch-export``, ``onnx`` (extra ``export``), or several of them.
        out: The folder to write; by default ``export`` in the run folder.
        data_dir: Folder of local data files; it wins over the one in the run's configuration.
        model: The module that the run was given, where it was given a Python object.

    Returns:
        Folder and files.

    Raises:
        InputError: if a width is not in (0, 1], a format is unknown or does not take the model, run, data or
            model cannot be had, or a file is there already.
        ExportError: if a file does not give what the sub-model gives; none is put in place then.

    Example::

        exported = ww.export("runs/x", [0.25, 0.5], "onnx")
    """
    chosen = chosen_widths(widths)
    kinds = _kinds(formats)
    trained = open_run(run, data_dir, model)
    common = about(trained, environment())
    folder = Path(out) if out else trained.run.path / "export"
    planned = [
        file_name(common, width, kind) for width, kind in product(chosen or common.tiers, kinds.values())
    ]
    _check_free(folder, common, planned)
    with _staging(folder) as staging:
        files = []
        for each in slices(trained, chosen):
            sub_model = _exportable(trained, common, each)
            for name, kind in kinds.items():
                path = staging / file_name(common, each.spec.width, kind)
                difference = _write(sub_model, name, kind, path, trained.fed.task.test, model)
                files.append(_described(path, name, each.result, difference))
        _put(folder, common, files, staging)
    return Exported(folder, common.rounds_done, common.rounds, tuple(files))


def file_name(common: About, width: float, kind: Format) -> str:
    """Return the name of a file: model, width, suffix."""
    model = re.sub(r"[^\w-]+", "-", common.model.rpartition(":")[2])
    return f"{model}-w{str(width).removesuffix('.0')}{kind.suffix}"


def _kinds(formats: str | Iterable[str]) -> dict[str, Format]:
    names = [formats] if isinstance(formats, str) else list(formats)
    if not names:
        raise ConfigError("the list of formats is empty, but there is nothing to do then. Name a format.")
    kinds = {name: FORMATS[name].value for name in names}
    for name, kind in kinds.items():
        kind.check(name)
    return kinds


def _check_free(folder: Path, common: About, planned: Iterable[str]) -> None:
    """Refuse a folder that the files cannot go into."""
    read_manifest(folder, common)
    for name in planned:
        if (folder / name).exists():
            raise CheckpointError(
                f"output file is {str(folder / name)!r}, but it is there already. "
                "Remove it, or choose another --out."
            )


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """Give a folder beside the one to write, on the same disk; it is gone afterwards."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = tempfile.TemporaryDirectory(prefix=".export-", dir=folder.parent)
    except OSError as error:
        raise cannot_write(folder, error) from error
    with staging as path:
        yield Path(path)


def _exportable(trained: Trained, common: About, each: Slice) -> Exportable:
    """Return a sub-model with its passport."""
    module = Scores(each.module).eval()
    passport = Passport(
        version=common.version,
        method=common.method,
        seed=common.seed,
        config_hash=common.config_hash,
        rounds=common.rounds_done,
        dataset=common.data.name,
        model=common.model,
        options=common.options,
        signature=common.signature,
        tracing=trained.fed.task.tracing,
        width=each.spec.width,
        kept={group: stretches(kept) for group, kept in each.spec.kept.items()},
        masked=each.spec.mask is not None,
        scores=tuple(map(tuple, probed(module, common.signature).tolist())),
    )
    return Exportable(module, trained.fed.task.example_inputs(), passport)


def _write(
    sub_model: Exportable, name: str, kind: Format, path: Path, samples: Samples, model: nn.Module | None
) -> float:
    """Write a file, load it again, and return how far its scores are from those of the sub-model."""
    write_atomic(path, partial(kind.save, sub_model))
    what = f"the {name} file of width {sub_model.passport.width:g}"
    return compare(what, kind.reload(path, model), sub_model.module, samples)


def _described(path: Path, name: str, result: WidthResult, difference: float) -> ExportedFile:
    """Return the entry of a file that is written; its bytes stand in place of the module's."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    measured = {**vars(result), "bytes": path.stat().st_size}
    return ExportedFile(file=path.name, format=name, largest_difference=difference, sha256=digest, **measured)


def _put(folder: Path, common: About, files: Sequence[ExportedFile], staging: Path) -> None:
    """Move the files into place and tell of them, or leave none there."""
    lock = FolderLock(folder, "output folder")
    lock.acquire()
    try:
        _check_free(folder, common, (file.file for file in files))
        try:
            for file in files:
                write_atomic(folder / file.file, (staging / file.file).replace)
            manifest = read_manifest(folder, common).plus(files)
            write_json(folder / MANIFEST, manifest.model_dump(mode="json"))
            write_text(folder / CARD, card(manifest))
        except BaseException:
            for file in files:  # a manifest that names them already leaves out what is not there
                (folder / file.file).unlink(missing_ok=True)
            raise
    finally:
        lock.release()
