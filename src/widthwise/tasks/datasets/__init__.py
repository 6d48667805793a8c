"""Data sets, one file each."""

from __future__ import annotations

from widthwise.core.registry import Registry
from widthwise.tasks.datasets.cifar10 import CIFAR10
from widthwise.tasks.datasets.dhcd import DHCD
from widthwise.tasks.datasets.digits import DIGITS
from widthwise.tasks.datasets.emnist import EMNIST
from widthwise.tasks.datasets.fashion_mnist import FASHION_MNIST
from widthwise.tasks.datasets.femnist import FEMNIST
from widthwise.tasks.datasets.shakespeare import SHAKESPEARE
from widthwise.tasks.source import Source

DATASETS = Registry[Source]("dataset")

for _source in (DIGITS, CIFAR10, FASHION_MNIST, EMNIST, FEMNIST, DHCD, SHAKESPEARE):
    DATASETS.add(_source.name, _source, summary=_source.summary, source=_source.origin)
