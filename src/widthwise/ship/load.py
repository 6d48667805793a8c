"""Exported files as modules again."""

from __future__ import annotations

import json
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from widthwise.core.errors import ConfigError, InputError, SliceError
from widthwise.ship.passport import FORMAT, KEY, Passport, Scores, probed
from widthwise.ship.silence import silenced
from widthwise.slicing import trace
from widthwise.tasks import resolve_model
from widthwise.tasks.custom import OBJECT

#: How far the scores of the probe may be from the stored ones, which may come from another machine.
RECOGNISED = 1e-4


def load_export(path: Path | str, model: nn.Module | None = None) -> nn.Module:
    """Return the sub-model of an exported file, ready to use: inputs [B, ...] -> class scores [B, classes].

    Needs neither the run nor its data. The module of a ``.safetensors`` file is built again from the model's
    code, a registered one or a ``module:factory`` that can be imported here, and recognised by scores in the
    file; it is the attribute ``model`` of what is returned, with the parameter names of the trained
    model. A ``.pt2`` file holds its whole program.

    Args:
        path: A ``.safetensors`` or ``.pt2`` file.
        model: The full-width model, where the run was given a Python object: its weights do not matter.

    Returns:
        A module in evaluation mode.

    Raises:
        InputError: if the file is missing, damaged or of another kind, or the model's code is not at hand or
            has changed.

    Example::

        scores = ww.load_export("cnn-small-w0.25.safetensors")(inputs)
    """
    file = Path(path)
    if file.suffix == ".onnx":
        raise InputError(
            f"file is {str(file)!r}, but an ONNX file is no module of torch. Run it with "
            "onnxruntime.InferenceSession."
        )
    if not file.is_file():
        raise InputError(f"file is {str(file)!r}, but there is no such file. Name one that was exported.")
    return program(file) if file.suffix == ".pt2" else rebuilt(file, model)


def program(path: Path) -> nn.Module:
    """Return the module of a ``torch.export`` program.

    Raises:
        InputError: if the file is no such program.
    """
    try:
        with silenced():
            return torch.export.load(path).module()
    except Exception as error:  # the archive's readers raise of every kind
        raise damaged(path, error) from error


def rebuilt(path: Path, model: nn.Module | None = None) -> Scores:
    """Return the module of a safetensors file.

    Raises:
        InputError: if the file or the model's code does not allow it.
    """
    passport = read_passport(path)
    if passport.model.startswith(OBJECT) and model is None:
        raise ConfigError(
            f"model of {str(path)!r} is {passport.model!r}, but that is a Python object, of which a file "
            "holds the name alone. Hand over a module of that kind: load_export(path, model=module)."
        )
    spec = resolve_model(passport.model, passport.signature, passport.options, model)
    full = spec.build(passport.seed)
    space = trace(full, spec.example_inputs(), **passport.tracing)
    try:
        module = space.extract(full, passport.spec)
        safetensors.torch.load_model(module, path)
    except (SliceError, RuntimeError, SafetensorError) as error:
        raise changed(path, passport, "it has other parameters or channels") from error
    scores = Scores(module).requires_grad_(False).eval()
    expected = torch.tensor(passport.scores)
    apart = (probed(scores, passport.signature) - expected).abs().max()
    if not apart <= RECOGNISED * expected.abs().max().clamp(min=1):
        raise changed(path, passport, f"it gives scores that are {float(apart):.2g} from the stored ones")
    return scores


def read_passport(path: Path) -> Passport:
    """Return the passport of a safetensors file.

    Raises:
        InputError: if it is damaged, was not exported, or by another version.
    """
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(KEY)
    except (OSError, SafetensorError) as error:
        raise damaged(path, error) from error
    if text is None:
        raise InputError(f"file is {str(path)!r}, but it was not exported by widthwise. Name one that was.")
    try:
        written = json.loads(text)["format"]
        passport = Passport.model_validate_json(text) if written == FORMAT else None
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error
    if passport is None:
        raise InputError(
            f"file is {str(path)!r}, but it was written in format {written} and this version reads {FORMAT}. "
            "Export the run again."
        )
    return passport


def damaged(path: Path, error: Exception) -> InputError:
    """Return the error for a file that cannot be read."""
    why = (str(error).strip() or type(error).__name__).splitlines()[0]
    return InputError(f"file is {str(path)!r}, but it is damaged ({why}). Export the run again.")


def changed(path: Path, passport: Passport, how: str) -> InputError:
    """Return the error for a model whose code is not that of the export."""
    return InputError(
        f"file is {str(path)!r}, but the model {passport.model!r} is built differently here: {how}. "
        "Load it with the code that it was exported with."
    )
