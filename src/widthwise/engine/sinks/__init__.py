"""Event sinks."""

from widthwise.engine.sinks.base import Sink
from widthwise.engine.sinks.tensorboard import TensorBoardSink

__all__ = ["Sink", "TensorBoardSink"]
