"""Handing out what was trained: sub-models of a run, measured and written as files."""

from __future__ import annotations

from widthwise.ship.export import Exported, export
from widthwise.ship.formats import FORMATS, Format
from widthwise.ship.load import load_export
from widthwise.ship.manifest import ExportedFile
from widthwise.ship.widths import WidthResult, WidthResults, evaluate

__all__ = [
    "FORMATS",
    "Exported",
    "ExportedFile",
    "Format",
    "WidthResult",
    "WidthResults",
    "evaluate",
    "export",
    "load_export",
]
