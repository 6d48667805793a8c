"""Parameters and buffers by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import safetensors.torch
from torch import Tensor, nn

from widthwise.ship.formats.format import Exportable, Format
from widthwise.ship.load import rebuilt
from widthwise.ship.passport import KEY


class SafetensorsFile(Format):
    """The tensors under the names of the trained model, tied ones once; the passport builds the rest."""

    suffix: ClassVar[str] = ".safetensors"

    def save(self, sub_model: Exportable, path: Path) -> None:
        """Write the tensors, and the passport as metadata."""
        metadata = {"format": "pt", KEY: sub_model.passport.model_dump_json()}
        safetensors.torch.save_model(sub_model.module.model, str(path), metadata)

    def reload(self, path: Path, model: nn.Module | None) -> Callable[[Tensor], Tensor]:
        """Build the module that the passport names and load the tensors."""
        return rebuilt(path, model)
