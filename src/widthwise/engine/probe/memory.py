"""How much memory training takes: of a process, as Linux counts it, or of its CUDA device, as torch does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch

from widthwise.core.errors import ConfigError
from widthwise.engine.probe.records import MIB

_FIELD = re.compile(rb"^(VmHWM|VmRSS|VmSwap):\s+(\d+) kB$", re.M)


@dataclass(frozen=True)
class Footprint:
    """The memory of a process, in bytes.

    Attributes:
        now: What lies in memory (libraries and shared memory included) or was swapped out; on a CUDA device,
            its tensors.
        peak: The largest that ``now`` has been in memory since the process started, or ``now`` where that is
            more.
    """

    now: int
    peak: int


def footprint(process: int | str = "self") -> Footprint | None:
    """Return the memory of a process, or None if it has ended.

    The kernel keeps the peak itself (``VmHWM``), so nothing is missed between two readings.

    Args:
        process: Its id, or ``self``.

    Raises:
        ConfigError: if this system has no ``/proc`` that says so.
    """
    try:
        status = Path(f"/proc/{process}/status").read_bytes()
    except OSError:
        if Path("/proc/self/status").is_file():
            return None
        raise ConfigError(
            "the memory of a process is asked for, but it is read from /proc, which this system does not "
            "have. Probe on Linux."
        ) from None
    size = {name.decode(): 1024 * int(number) for name, number in _FIELD.findall(status)}
    if "VmHWM" not in size:  # it has ended, and its parent has not asked for its exit code yet
        return None
    now = size["VmRSS"] + size.get("VmSwap", 0)
    return Footprint(now, max(now, size["VmHWM"]))


def own_footprint(device: torch.device) -> Footprint:
    """Return the memory that counts for training on a device: of this process, or of its tensors there."""
    if device.type == "cuda":
        return Footprint(torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device))
    own = footprint()
    assert own is not None
    return own


def limit(device: torch.device, memory_mib: float) -> None:
    """Let torch refuse what would exceed a bound on a CUDA device. On the CPU nothing is limited.

    There torch does not take more addresses than it uses, unlike here, where a process must be watched
    from outside instead.
    """
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, memory_mib * MIB / total), device)
