"""ONNX."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from widthwise.core.errors import ConfigError
from widthwise.ship.formats.format import INPUTS, SCORES, Exportable, Format, exporting
from widthwise.ship.passport import KEY

#: A protocol buffer holds no more.
MAX_BYTES = 2**31


class OnnxFile(Format):
    """One file with operations and tensors; input ``inputs``, output ``scores``, both with any batch."""

    suffix: ClassVar[str] = ".onnx"
    packages: ClassVar[tuple[str, ...]] = ("onnx", "onnxscript", "onnxruntime")

    def save(self, sub_model: Exportable, path: Path) -> None:
        """Write the model, and the passport as metadata of it; ``onnx.checker`` looks at the file."""
        import onnx

        passport = sub_model.passport
        size = sum(value.nbytes for value in sub_model.module.state_dict().values())
        if size >= MAX_BYTES:
            raise ConfigError(
                f"the sub-model of width {passport.width:g} takes {size / 1e9:.1f} GB, but one ONNX file "
                "holds at most 2 GB. Choose another --format, or a smaller --width."
            )
        with exporting("onnx"):
            made: Any = torch.onnx.export(
                sub_model.program,
                dynamo=True,
                verbose=False,
                input_names=[INPUTS],
                output_names=[SCORES],
            )
            made.model.metadata_props[KEY] = passport.model_dump_json()
            made.save(path)
            onnx.checker.check_model(path, full_check=True)

    def reload(self, path: Path, model: nn.Module | None) -> Callable[[Tensor], Tensor]:
        """Load the file into onnxruntime, on the CPU."""
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return lambda inputs: torch.from_numpy(session.run([SCORES], {INPUTS: inputs.numpy()})[0])
