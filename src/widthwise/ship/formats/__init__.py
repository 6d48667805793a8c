"""File formats of exported sub-models, one file each."""

from __future__ import annotations

from widthwise.core.registry import Registry
from widthwise.ship.formats.format import Format
from widthwise.ship.formats.onnx_file import OnnxFile
from widthwise.ship.formats.safetensors_file import SafetensorsFile
from widthwise.ship.formats.torch_export import TorchExport

FORMATS = Registry[Format]("format")
FORMATS.add(
    "safetensors",
    SafetensorsFile(),
    summary="parameters by name; widthwise builds the module around them",
    source="huggingface.co/docs/safetensors",
)
FORMATS.add(
    "torch-export",
    TorchExport(),
    summary="the whole program, for PyTorch without widthwise",
    source="docs.pytorch.org/docs/stable/export.html",
)
FORMATS.add(
    "onnx",
    OnnxFile(),
    summary="the whole program, for onnxruntime and other engines without PyTorch",
    source="onnx.ai",
)

__all__ = ["FORMATS", "Format"]
