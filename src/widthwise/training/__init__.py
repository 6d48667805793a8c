"""What a client does with a sub-model: local objectives, the one training loop, evaluation."""

from __future__ import annotations

from widthwise.core.registry import Registry
from widthwise.training.batches import batch_sizes, epoch_batches
from widthwise.training.config import TrainingConfig
from widthwise.training.control_variates import ControlVariates, count_holders
from widthwise.training.distillation import Distillation
from widthwise.training.evaluate import Evaluation, evaluate
from widthwise.training.loop import train
from widthwise.training.modules import ModuleCache
from widthwise.training.objective import Local, LocalSetting, Objective
from widthwise.training.plain import Plain
from widthwise.training.proximal import Proximal
from widthwise.training.recalibrate import recalibrate, running_statistics
from widthwise.training.stacked import train_stack

OBJECTIVES = Registry[type[Objective]]("objective")
OBJECTIVES.add("plain", Plain, summary="SGD on the local loss", source="McMahan et al. 2017, algorithm 1")
OBJECTIVES.add(
    "proximal", Proximal, summary="held near the received parameters", source="Li et al. 2020, eq. 2"
)
OBJECTIVES.add(
    "control-variates",
    ControlVariates,
    summary="gradients corrected for client drift",
    source="Karimireddy et al. 2020, algorithm 1, option II",
)
OBJECTIVES.add(
    "distillation",
    Distillation,
    summary="a sub-model learns from the client's own larger network",
    source="Horvath et al. 2021, eq. 1",
)

__all__ = [
    "OBJECTIVES",
    "Evaluation",
    "Local",
    "LocalSetting",
    "ModuleCache",
    "Objective",
    "TrainingConfig",
    "batch_sizes",
    "count_holders",
    "epoch_batches",
    "evaluate",
    "recalibrate",
    "running_statistics",
    "train",
    "train_stack",
]
