"""A task: data, who holds it, what each client can train, and the model."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from torch import Tensor, nn

from widthwise.core.errors import ConfigError, unknown_name
from widthwise.core.seeds import SeedTree
from widthwise.tasks.capacity import CapacityConfig
from widthwise.tasks.custom import OBJECT, Given, Imported, identity_of, target_of
from widthwise.tasks.dataset import Dataset, Signature
from widthwise.tasks.datasets import DATASETS
from widthwise.tasks.held import Partition
from widthwise.tasks.model import ModelSpec, Norm
from widthwise.tasks.models import MODELS
from widthwise.tasks.partition import Natural, PartitionConfig, partition
from widthwise.tasks.slices import SliceRules
from widthwise.tasks.source import Request

Count = Annotated[int, Field(ge=1)]


class ModelConfig(BaseModel):
    """A model by name; further keys are its options.

    Attributes:
        name: Name of a registered model, ``module:factory``, or the identity of a handed over module.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    _module: nn.Module | None = PrivateAttr(None)

    @classmethod
    def of(cls, module: nn.Module) -> Self:
        """Return the model that is this module as it is now: what becomes of it later has no effect."""
        model = cls(name=identity_of(module))
        model._module = copy.deepcopy(module)
        return model


class TaskConfig(BaseModel):
    """The ``task:`` block of a configuration.

    Attributes:
        dataset: Name of a registered data set.
        model: Name of a registered model, ``module:factory``, or a mapping with one of these as ``name`` and
            the model's options. In Python also the factory itself, or a module with its weights.
        slices: How the model may be cut.
        norm: Normalisation layer, short for the model's option of that name; None keeps the model's default.
        clients: Number of clients N.
        partition: Who holds which samples.
        limit: Training samples to keep, drawn at random; None keeps all.
        test_limit: Test samples to keep, drawn at random; None keeps all.
        test_fraction: Share held out for the test, for sets without a test split of their own (0.2).
        imbalance: Thins out classes exponentially, in training and test set: samples of the first class for
            one of the last (long-tailed); None keeps them as they are.
        augment: Shift and mirror training images at random.
        data_dir: Folder of local Parquet files, ``<data_dir>/<dataset>/train.parquet``; it wins over the hub.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    model: str | ModelConfig
    slices: SliceRules = SliceRules()
    norm: Norm | None = None
    clients: Count = 20
    partition: PartitionConfig
    limit: Count | None = None
    test_limit: Count | None = None
    test_fraction: float | None = Field(None, gt=0, lt=1)
    imbalance: float | None = Field(None, ge=1, allow_inf_nan=False)
    augment: bool = False
    data_dir: Path | None = None

    @field_validator("model", mode="before")
    @classmethod
    def _name_objects(cls, value: Any) -> Any:
        if isinstance(value, nn.Module):
            return ModelConfig.of(value)
        if isinstance(value, Mapping) and callable(value.get("name")):
            return {**value, "name": target_of(value["name"])}
        return target_of(value) if callable(value) else value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.model_spec()
        return self

    def model_spec(self) -> ModelSpec:
        """Return the model for the data set, known before any data is read.

        Raises:
            ConfigError: if a name is unknown, the model does not take such data or has no such option.
        """
        model = ModelConfig(name=self.model) if isinstance(self.model, str) else self.model
        options = dict(model.model_extra or {})
        if self.norm is not None and options.setdefault("norm", self.norm) != self.norm:
            raise ConfigError(
                f"task.norm is {self.norm!r}, but task.model.norm is {options['norm']!r}. Remove one of them."
            )
        return resolve_model(model.name, DATASETS[self.dataset].value.signature, options, model._module)


def resolve_model(
    name: str,
    signature: Signature,
    options: Mapping[str, Any] | None = None,
    module: nn.Module | None = None,
) -> ModelSpec:
    """Return a model for data of this signature.

    Args:
        name: Of a registered model, ``module:factory``, or the identity of a module that is handed over.
        signature: The data.
        options: The model's options.
        module: The module that is handed over.

    Raises:
        ConfigError: if the name is unknown, the model does not take such data or an option is not valid.
    """
    if name.startswith(OBJECT):
        if options:
            raise ConfigError(
                f"model is {name!r} with {', '.join(options)}, but a module that is made already takes no "
                "options. Remove them."
            )
        return ModelSpec(name, Given.of(name, module), signature)
    if ":" in name:
        return ModelSpec(name, Imported.of(name, options or {}), signature)
    kind = MODELS[name].value
    if signature.kind not in kind.kinds:
        raise ConfigError(
            f"model is {name!r}, but the data is of kind {signature.kind!r} and it takes "
            f"{' or '.join(kind.kinds)}. Choose one of: "
            f"{', '.join(entry.name for entry in MODELS if signature.kind in entry.value.kinds)}."
        )
    try:
        return ModelSpec(name, kind.model_validate(dict(options or {})), signature)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            known = kind.model_fields
            text = (
                unknown_name(f"option of model {name!r}", where, known)
                if known
                else (f"option of model {name!r} is {where!r}, but it has no options. Remove it.")
            )
            raise ConfigError(text) from error
        raise ConfigError(
            f"model {name!r}: {where} is {first['input']!r}, but {first['msg'].lower()}. Correct it."
        ) from error


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that a run learns from. Picklable.

    Attributes:
        name: Name of the data set.
        train: Training samples of all clients.
        test: Test samples.
        partition: Which training samples each client holds.
        capacities: Largest width of each client, float64 [N].
        tiers: The widths that occur as capacities, ascending.
        model: The global model.
        slices: How it may be cut.
    """

    name: str
    train: Dataset
    test: Dataset
    partition: Partition
    capacities: npt.NDArray[np.float64]
    tiers: tuple[float, ...]
    model: ModelSpec
    slices: SliceRules = field(default_factory=SliceRules)

    @property
    def num_clients(self) -> int:
        """Number of clients N."""
        return len(self.partition)

    @property
    def tracing(self) -> dict[str, Any]:
        """Keyword arguments of ``trace`` for the model."""
        return self.slices.options(self.model.freeze)

    def build_model(self, seed: int) -> nn.Module:
        """Return the global model as it is before the first round."""
        return self.model.build(seed)

    def example_inputs(self, batch: int = 2) -> Tensor:
        """Return inputs in the shape and type of a batch, for tracing."""
        return self.model.example_inputs(batch)

    def class_counts(self, clients: Iterable[int] | None = None) -> npt.NDArray[np.int64]:
        """Return how many training samples of each class these clients, or all, hold, int64 [N, classes]."""
        chosen = range(self.num_clients) if clients is None else clients
        return self.partition.class_counts(self.train.labels(), self.train.num_classes, chosen)

    def class_totals(self) -> npt.NDArray[np.int64]:
        """Return how many training samples of each class all clients hold together, int64 [classes]."""
        return self.partition.class_totals(self.train.labels(), self.train.num_classes)


def build_task(config: TaskConfig, capacity: CapacityConfig, seed: int, data_dir: Path | None = None) -> Task:
    """Return the task of one run; the seed draws partition, capacities and the samples kept by a limit.

    Args:
        config: The ``task:`` block.
        capacity: The ``capacity:`` block.
        seed: Root seed of the run.
        data_dir: Folder of local Parquet files; wins over the configuration's.

    Raises:
        ConfigError: if the parts do not fit each other.
        DataError: if data is missing or damaged.
    """
    seeds = SeedTree(seed)
    capacities = capacity.draw(config.clients, seeds)
    splits = DATASETS[config.dataset].value.load(
        Request(
            seeds=seeds,
            data_dir=data_dir or config.data_dir,
            limit=config.limit,
            test_limit=config.test_limit,
            test_fraction=config.test_fraction,
            imbalance=config.imbalance,
            augment=config.augment,
            largest_ids=config.clients if isinstance(config.partition, Natural) else None,
        )
    )
    held = partition(config.partition, splits.train.labels(), splits.ids, config.clients, seeds)
    return Task(
        name=config.dataset,
        train=splits.train,
        test=splits.test,
        partition=held,
        capacities=capacities,
        tiers=capacity.levels(),
        model=config.model_spec(),
        slices=config.slices,
    )
