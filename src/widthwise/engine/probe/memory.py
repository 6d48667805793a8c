"""How much memory a process takes, as Linux counts it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from widthwise.core.errors import ConfigError

_FIELD = re.compile(rb"^(VmHWM|VmRSS|VmSwap):\s+(\d+) kB$", re.M)


@dataclass(frozen=True)
class Footprint:
    """The memory of a process, in bytes.

    Attributes:
        now: What lies in memory (libraries and shared memory included) or was swapped out.
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
