"""Which widths a machine can train: real training steps, each in a process of its own that is watched."""

from widthwise.engine.probe.capacity import probe
from widthwise.engine.probe.memory import Footprint, footprint
from widthwise.engine.probe.records import Bounds, ProbeResult, ProbeRow

__all__ = ["Bounds", "Footprint", "ProbeResult", "ProbeRow", "footprint", "probe"]
