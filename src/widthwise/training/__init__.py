"""What a client does with a sub-model: local objectives, the one training loop, evaluation."""

from __future__ import annotations

from widthwise.core.registry import Registry
from widthwise.training.batches import epoch_batches
from widthwise.training.config import TrainingConfig
from widthwise.training.evaluate import Evaluation, evaluate
from widthwise.training.loop import train
from widthwise.training.modules import ModuleCache, load_
from widthwise.training.objective import Local, LocalSetting, Objective
from widthwise.training.plain import Plain

OBJECTIVES = Registry[type[Objective]]("objective")
OBJECTIVES.add("plain", Plain, summary="SGD on the local loss", source="McMahan et al. 2017, algorithm 1")

__all__ = [
    "OBJECTIVES",
    "Evaluation",
    "Local",
    "LocalSetting",
    "ModuleCache",
    "Objective",
    "TrainingConfig",
    "epoch_batches",
    "evaluate",
    "load_",
    "train",
]
