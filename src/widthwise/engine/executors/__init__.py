"""Executors: where clients are trained. Only they own processes."""

from widthwise.core.registry import Registry
from widthwise.engine.executors.base import Executor, RepeatRound
from widthwise.engine.executors.process import ProcessExecutor
from widthwise.engine.executors.ray import RayExecutor
from widthwise.engine.executors.serial import SerialExecutor

EXECUTORS = Registry[type[Executor]]("executor")
EXECUTORS.add("serial", SerialExecutor, summary="one client after the other", source="widthwise")
EXECUTORS.add(
    "process", ProcessExecutor, summary="one process per worker, one thread each", source="widthwise"
)
EXECUTORS.add(
    "ray", RayExecutor, summary="actors of Ray, on this machine or a cluster", source="Moritz et al. 2018"
)

__all__ = ["EXECUTORS", "Executor", "RepeatRound"]
