"""The engine: round loop, executors, checkpoints, sinks, run folders."""

from widthwise.engine.config import DeployConfig, EngineConfig
from widthwise.engine.executors import EXECUTORS
from widthwise.engine.federation import Federation
from widthwise.engine.loop import run_federation
from widthwise.engine.runs import RunResult, is_run, load_run
from widthwise.engine.sinks import Sink

__all__ = [
    "EXECUTORS",
    "DeployConfig",
    "EngineConfig",
    "Federation",
    "RunResult",
    "Sink",
    "is_run",
    "load_run",
    "run_federation",
]
