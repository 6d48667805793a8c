"""``export.json``: what an export folder holds, as data. The model card is written from nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from widthwise.core.errors import CheckpointError
from widthwise.ship.trained import Trained
from widthwise.tasks import DATASETS, Signature
from widthwise.training import running_statistics

MANIFEST, CARD = "export.json", "README.md"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Data(_Record):
    """The data set of a run.

    Attributes:
        name: Registered name.
        summary: What is in it.
        origin: Who made it.
        terms: Under which terms it may be used.
        test_samples: How many the accuracies are over.
        changes: Settings of the run by which its samples differ from the whole set.
        raw: What raw samples are; None where the data set does not say.
        prepare: Source of the function ``prepare`` from raw samples to inputs.
    """

    name: str
    summary: str
    origin: str
    terms: str
    test_samples: int
    changes: dict[str, Any]
    raw: str | None
    prepare: str | None


class About(_Record):
    """What all files of a folder have in common.

    Attributes:
        version: Of widthwise, when they were exported.
        torch: Version of torch.
        name: The run's label.
        method: Its method.
        seed: Its root seed.
        config_hash: Identity of what it computed.
        commit: Of the code that it ran, None where not known.
        trained: When it started.
        rounds_done: Rounds after which the parameters were saved.
        rounds: Rounds of the whole run.
        clients: Number of clients.
        tiers: Largest widths that clients could train.
        model: Name of the model.
        options: Its options.
        signature: Kind, shape and number of classes of the inputs.
        classes: Names of the classes.
        shipped: What the method ships at a width.
        masked: Whether that is the full model with zeros.
        precision: Of the evaluation.
        recalibrated: Training samples from which batch-norm statistics were estimated; 0 without batch norm.
        data: The data set.
    """

    version: str
    torch: str
    name: str
    method: str
    seed: int
    config_hash: str
    commit: str | None
    trained: str | None
    rounds_done: int
    rounds: int
    clients: int
    tiers: tuple[float, ...]
    model: str
    options: dict[str, Any]
    signature: Signature
    classes: tuple[str, ...]
    shipped: str
    masked: bool
    precision: str
    recalibrated: int
    data: Data


class ExportedFile(_Record):
    """One exported file.

    Attributes:
        file: Its name.
        format: Its format.
        width: Of the sub-model.
        accuracy: On the test set, in [0, 1].
        loss: Mean over the test set.
        params: Parameters of the module.
        kept: Those that are not masked out.
        macs: Multiply-accumulates of one sample.
        bytes: Size of the file.
        never_trained: Share of the kept parameters that no client has trained.
        recorded: The accuracy that the run itself noted at its end, where it did.
        largest_difference: Between scores of the reloaded file and of the sub-model, on some test samples.
        sha256: Of the file.
    """

    file: str
    format: str
    width: float
    accuracy: float
    loss: float
    params: int
    kept: int
    macs: int
    bytes: int
    never_trained: float
    recorded: float | None
    largest_difference: float
    sha256: str


class Manifest(_Record):
    """The content of ``export.json``."""

    about: About
    files: tuple[ExportedFile, ...]

    def plus(self, files: Iterable[ExportedFile]) -> Manifest:
        """Return the manifest with further files, by width, then by format."""
        every = sorted((*self.files, *files), key=lambda file: (file.width, file.format))
        return Manifest(about=self.about, files=tuple(every))


def read_manifest(folder: Path, about: About) -> Manifest:
    """Return what an export folder holds already, which must be of the same run; nothing in a new one.

    Files that were removed since are left out.

    Raises:
        CheckpointError: if it holds something else.
    """
    file = folder / MANIFEST
    if not file.is_file():
        if (folder / CARD).exists():
            raise CheckpointError(
                f"output folder is {str(folder)!r}, but it holds a {CARD} that is no model card. "
                "Choose another --out."
            )
        return Manifest(about=about, files=())
    try:
        found = Manifest.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise CheckpointError(
            f"output folder is {str(folder)!r}, but its {MANIFEST} is damaged. Choose another --out."
        ) from error
    if found.about != about:
        raise CheckpointError(
            f"output folder is {str(folder)!r}, but it holds exports of another run, of other rounds of this "
            "one, or by another version. Choose another --out."
        )
    return Manifest(about=about, files=tuple(each for each in found.files if (folder / each.file).is_file()))


def about(trained: Trained, environment: dict[str, Any]) -> About:
    """Return what the files of a run have in common.

    Args:
        trained: The run.
        environment: Of this process.
    """
    fed, run = trained.fed, trained.run
    task, source = fed.task, DATASETS[fed.task.name].value
    statistics = running_statistics(task.build_model(fed.seed), task.example_inputs())
    samples = min(fed.engine.recalibration_samples, len(task.partition.held()))
    preparation = source.preparation
    changes = {
        key: run.config["task"].get(key)
        for key in ("limit", "test_limit", "test_fraction", "imbalance", "augment")
    }
    return About(
        version=str(environment["packages"]["widthwise"]),
        torch=str(environment["packages"]["torch"]),
        name=run.name,
        method=run.method,
        seed=run.seed,
        config_hash=fed.config_hash,
        commit=run.environment.get("commit"),
        trained=run.environment.get("time"),
        rounds_done=trained.state.round_index,
        rounds=trained.rounds,
        clients=task.num_clients,
        tiers=task.tiers,
        model=task.model.name,
        options=task.model.options.model_dump(mode="json"),
        signature=task.model.signature,
        classes=task.test.class_names,
        shipped=fed.method.selector.shipped,
        masked=trained.masked,
        precision=fed.engine.precision,
        recalibrated=samples if statistics else 0,
        data=Data(
            name=task.name,
            summary=source.summary,
            origin=source.origin,
            terms=source.terms,
            test_samples=len(task.test),
            changes={key: value for key, value in changes.items() if value},
            raw=preparation.raw if preparation else None,
            prepare=preparation.code if preparation else None,
        ),
    )
