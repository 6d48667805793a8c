"""widthwise: one model, every width.

The public names load on first use, so that ``import widthwise`` costs next to nothing.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from widthwise.aggregation import aggregate
    from widthwise.audit import AuditReport, audit, coverage
    from widthwise.core.errors import (
        ExportError,
        InputError,
        RunError,
        SliceError,
        TraceError,
        WidthwiseError,
    )
    from widthwise.core.records import SliceSpec
    from widthwise.engine.runs import RunResult, load_run
    from widthwise.report import build_report
    from widthwise.ship import evaluate, export, load_export
    from widthwise.slicing import Cost, WidthSpace, cost, trace
    from widthwise.slicing.rules import rule
    from widthwise.studies import RunConfig, load_config, run

__version__ = "0.1.0"

# oneDNN compiles a convolution for each shape and keeps the last 1,024: fewer than widths times batch sizes
# times layers of one model, so that every client would compile its own. It reads this when it first runs.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")

_HOMES = {
    "AuditReport": "widthwise.audit",
    "Cost": "widthwise.slicing",
    "ExportError": "widthwise.core.errors",
    "InputError": "widthwise.core.errors",
    "RunConfig": "widthwise.studies",
    "RunError": "widthwise.core.errors",
    "RunResult": "widthwise.engine.runs",
    "SliceError": "widthwise.core.errors",
    "SliceSpec": "widthwise.core.records",
    "TraceError": "widthwise.core.errors",
    "WidthSpace": "widthwise.slicing",
    "WidthwiseError": "widthwise.core.errors",
    "aggregate": "widthwise.aggregation",
    "audit": "widthwise.audit",
    "build_report": "widthwise.report",
    "cost": "widthwise.slicing",
    "coverage": "widthwise.audit",
    "evaluate": "widthwise.ship",
    "export": "widthwise.ship",
    "load_config": "widthwise.studies",
    "load_export": "widthwise.ship",
    "load_run": "widthwise.engine.runs",
    "rule": "widthwise.slicing.rules",
    "run": "widthwise.studies",
    "trace": "widthwise.slicing",
}

__all__ = [
    "AuditReport",
    "Cost",
    "ExportError",
    "InputError",
    "RunConfig",
    "RunError",
    "RunResult",
    "SliceError",
    "SliceSpec",
    "TraceError",
    "WidthSpace",
    "WidthwiseError",
    "aggregate",
    "audit",
    "build_report",
    "cost",
    "coverage",
    "evaluate",
    "export",
    "load_config",
    "load_export",
    "load_run",
    "rule",
    "run",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'widthwise' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """Keeps ``widthwise.audit`` the function: importing the folder of that name would put a module there."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
