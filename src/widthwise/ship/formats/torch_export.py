"""The program of ``torch.export``."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from widthwise.ship.formats.format import Exportable, Format, exporting
from widthwise.ship.load import program
from widthwise.ship.passport import KEY


class TorchExport(Format):
    """Operations and tensors: to load it takes torch, but neither widthwise nor the model's code."""

    suffix: ClassVar[str] = ".pt2"

    def save(self, sub_model: Exportable, path: Path) -> None:
        """Write the program, and the passport as an extra file of the archive."""
        archive = BytesIO()  # torch's own writer ends the process where the disk is full
        with exporting("torch-export"):
            extra = {KEY: sub_model.passport.model_dump_json()}
            torch.export.save(sub_model.program, archive, extra_files=extra)
        path.write_bytes(archive.getbuffer())

    def reload(self, path: Path, model: nn.Module | None) -> Callable[[Tensor], Tensor]:
        """Load the program."""
        return program(path)
