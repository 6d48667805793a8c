"""Which devices a configuration means on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import torch

from widthwise.core.device import CPU
from widthwise.core.errors import ConfigError

WORKERS_PER_GPU = 4
"""A small model keeps a GPU busy for a fraction of the time in which Python makes its steps."""


def cuda_devices() -> tuple[torch.device, ...]:
    """Return the CUDA devices that torch can use here."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return tuple(torch.device("cuda", index) for index in range(count))


def resolved(asked: str) -> str:
    """Return what is asked for; ``auto`` is ``cuda`` where there is such a device and else ``cpu``.

    Raises:
        ConfigError: if no device has such a name.
    """
    if not re.fullmatch(r"cpu|cuda(:\d+)?|auto", asked):
        raise ConfigError(
            f"device is {asked!r}, but clients train on cpu, cuda or cuda:N. "
            "Write auto to take what is there."
        )
    if asked == "auto":
        return "cuda" if cuda_devices() else "cpu"
    return asked


def present(asked: str) -> tuple[torch.device, ...]:
    """Return which of the devices that are asked for this machine has."""
    if asked == "cpu":
        return (CPU,)
    return tuple(device for device in cuda_devices() if asked in ("cuda", str(device)))


def devices(asked: str, *, elsewhere: bool = False) -> tuple[torch.device, ...]:
    """Return the devices that workers take in turn: the CPU, one CUDA device, or all of them.

    Args:
        asked: ``cpu``, ``cuda`` or ``cuda:N``.
        elsewhere: Whether workers may be on other machines. Then this one need not have the device, and a
            worker's is the first that it is given.

    Raises:
        ConfigError: if it is not there.

    Example:
        >>> devices("cpu")
        (device(type='cpu'),)
    """
    if asked != "cpu" and elsewhere:
        return (torch.device("cuda", 0),)
    if found := present(asked):
        return found
    names = ", ".join(map(str, cuda_devices())) or "no CUDA device"
    raise ConfigError(
        f"device is {asked!r}, but torch {torch.__version__} finds {names} on this machine. "
        "Write auto to take what is there."
    )


def default_workers(settings: Mapping[str, Any]) -> int:
    """Return how many workers there are by default: one for each core, and not many for each CUDA device."""
    cores, device = os.cpu_count() or 1, str(settings.get("device", "cpu"))
    if device == "cpu":
        return cores
    gpus = len(cuda_devices()) if device == "cuda" else 1
    return min(cores, WORKERS_PER_GPU * max(gpus, 1))
