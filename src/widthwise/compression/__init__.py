"""Compression of what clients report: the kinds by name, from a report to its compressed form and back."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Tag

from widthwise.compression.bf16 import Bf16
from widthwise.compression.compression import Compression, Layout
from widthwise.compression.int8 import Int8
from widthwise.compression.reports import compress, decompress, expand
from widthwise.compression.topk import TopK
from widthwise.core.errors import ConfigError, unknown_name
from widthwise.core.registry import Registry

COMPRESSIONS: Registry[type[Compression]] = Registry("compression")
COMPRESSIONS.add("bf16", Bf16, summary="two bytes a value, rounded to nearest", source="torch")
COMPRESSIONS.add(
    "int8",
    Int8,
    summary="one byte a value and four for each block of 256, rounded at random without bias",
    source="Alistarh et al. 2017, arXiv 1610.02132",
)
COMPRESSIONS.add(
    "topk",
    TopK,
    summary="the share of largest values and their positions, biased, without error feedback",
    source="Aji and Heafield 2017, arXiv 1704.05021",
)


def _kind(value: Any) -> str:
    return str(value.get("kind") if isinstance(value, dict) else getattr(value, "kind", value))


def _known(value: Any) -> Any:
    if isinstance(value, dict) and "kind" not in value:
        known = ", ".join(COMPRESSIONS.names())
        raise ConfigError(f"compression.kind is missing, but it is required. Add one of: {known}.")
    if _kind(value) not in COMPRESSIONS:
        raise ConfigError(unknown_name("compression.kind", _kind(value), COMPRESSIONS.names()))
    return {"kind": value} if isinstance(value, str) else value


CompressionConfig = Annotated[
    Annotated[Bf16, Tag("bf16")] | Annotated[Int8, Tag("int8")] | Annotated[TopK, Tag("topk")],
    Discriminator(_kind),
    BeforeValidator(_known),
]
"""The ``compression:`` block of a configuration: ``kind`` and the options of that kind, or the kind alone."""

__all__ = [
    "COMPRESSIONS",
    "Bf16",
    "Compression",
    "CompressionConfig",
    "Int8",
    "Layout",
    "TopK",
    "compress",
    "decompress",
    "expand",
]
