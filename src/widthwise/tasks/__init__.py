"""Tasks: data sets, partitions, capacities and models, and all reading and downloading of data."""

from __future__ import annotations

from widthwise.tasks.capacity import CapacityConfig
from widthwise.tasks.dataset import ArraySet, Dataset, Signature, TextSet
from widthwise.tasks.datasets import DATASETS
from widthwise.tasks.held import ListedPartition, Partition, PooledPartition
from widthwise.tasks.model import Model, ModelSpec
from widthwise.tasks.models import MODELS
from widthwise.tasks.partition import PartitionConfig
from widthwise.tasks.slices import SliceRules
from widthwise.tasks.source import Request, Source, Splits
from widthwise.tasks.task import Task, TaskConfig, build_task, resolve_model

__all__ = [
    "DATASETS",
    "MODELS",
    "ArraySet",
    "CapacityConfig",
    "Dataset",
    "ListedPartition",
    "Model",
    "ModelSpec",
    "Partition",
    "PartitionConfig",
    "PooledPartition",
    "Request",
    "Signature",
    "SliceRules",
    "Source",
    "Splits",
    "Task",
    "TaskConfig",
    "TextSet",
    "build_task",
    "resolve_model",
]
