"""What a file format is: how a sub-model is written, and how the file is run again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from widthwise.core.errors import ConfigError
from widthwise.ship.passport import Passport, Scores
from widthwise.ship.silence import silenced

#: What inputs and outputs are called in files that name them.
INPUTS, SCORES = "inputs", "scores"


@dataclass(frozen=True)
class Exportable:
    """A sub-model that is to be written.

    Attributes:
        module: In evaluation mode.
        example: Inputs [B, ...] with B > 1.
        passport: Goes into the file.
    """

    module: Scores
    example: Tensor
    passport: Passport

    @cached_property
    def program(self) -> ExportedProgram:
        """Its program, for batches of any size; captured once for all formats that hold one."""
        return torch.export.export(self.module, (self.example,), dynamic_shapes=({0: Dim("batch")},))


class Format(ABC):
    """A file format.

    Attributes:
        suffix: Of its files.
        packages: What must be installed, beside what widthwise itself needs.
    """

    suffix: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()

    def check(self, name: str) -> None:
        """Refuse the format where it cannot be written.

        Raises:
            ConfigError: if a package is not installed.
        """
        missing = [package for package in self.packages if find_spec(package) is None]
        if missing:
            raise ConfigError(
                f"format is {name!r}, but the package {missing[0]!r} is not installed. "
                "Run: pip install 'widthwise[export]'"
            )

    @abstractmethod
    def save(self, sub_model: Exportable, path: Path) -> None:
        """Write a sub-model, for batches of any size.

        Raises:
            ConfigError: if the sub-model cannot be written in this format.
        """

    @abstractmethod
    def reload(self, path: Path, model: nn.Module | None) -> Callable[[Tensor], Tensor]:
        """Return what the file computes: inputs [B, ...] -> scores [B, classes].

        Args:
            path: A file that ``save`` has written.
            model: The full-width model, where it is a Python object that the file can only name.
        """


@contextmanager
def exporting(name: str) -> Iterator[None]:
    """Turn whatever an exporter raises into one message, and silence what it says of torch's own insides.

    Raises:
        ConfigError: if the block raises; errors of the disk go through.
    """
    try:
        with silenced():
            yield
    except OSError:  # the disk's fault, not the model's
        raise
    except Exception as error:  # exporters raise of every kind
        first: BaseException = error
        while first.__cause__:  # what comes after it only says how far the exporter got
            first = first.__cause__
        lines = str(first).strip().splitlines()
        raise ConfigError(
            f"format is {name!r}, but torch cannot write the sub-model in it "
            f"({type(first).__name__}{f': {lines[0]}' if lines else ''}). "
            "Choose another --format: safetensors takes every model."
        ) from error
