"""Data sets, one file each."""

from __future__ import annotations

from widthwise.core.registry import Registry
from widthwise.tasks.datasets.digits import DIGITS
from widthwise.tasks.source import Source

DATASETS = Registry[Source]("dataset")

for _source in (DIGITS,):
    DATASETS.add(_source.name, _source, summary=_source.summary, source=_source.origin)
