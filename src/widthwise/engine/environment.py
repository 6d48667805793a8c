"""What a reader needs to know about where a run was made."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from widthwise.engine.devices import cuda_devices

PACKAGES = ("widthwise", "torch", "numpy", "datasets", "flwr-datasets", "scipy", "pandas", "pyarrow")


def environment(devices: Sequence[torch.device] = ()) -> dict[str, Any]:
    """Return versions, machine, commit of the code and command line of this process.

    Args:
        devices: Those that a run computes on; CUDA devices are told by name.
    """
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join([_program(), *sys.argv[1:]]),
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "devices": {str(device): _device_name(device) for device in devices},
    }


def _program() -> str:
    """Return how this process was started: a script's name, or the module of ``python -m``."""
    spec = sys.modules["__main__"].__spec__
    if spec is None:
        return Path(sys.argv[0]).name
    return f"python -m {spec.name.removesuffix('.__main__')}"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the checkout that this code runs from, ``-dirty`` if it has changes."""
    here = Path(__file__).parent
    try:
        describe = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        tracked = subprocess.run(
            ["git", "ls-files", "--error-unmatch", Path(__file__).name],
            cwd=here,
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return describe.stdout.strip() if tracked.returncode == 0 else None


def _device_name(device: torch.device) -> str:
    if device.type == "cpu":
        return _processor()
    return torch.cuda.get_device_name(device) if device in cuda_devices() else "of a cluster"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
