"""Where the class scores are in what a model returns. The one place that decides it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from widthwise.core.errors import InputError


def logits_of(output: Any) -> Tensor:
    """Return the class scores [B, classes] of a model's output.

    The scores are the output itself where it is a tensor, its ``logits`` where it is a mapping or has such
    an attribute (every output of ``transformers`` with a head), and else its first entry where it is a tuple
    or list. Scores [B, T, classes], one for each position of a text, are those of the last position: they
    are for what comes after the text.

    Raises:
        InputError: if there is no tensor in the place that this names.

    Example:
        >>> import torch
        >>> scores = torch.zeros(2, 10)
        >>> logits_of({"loss": None, "logits": scores}) is logits_of((scores, None)) is scores
        True
        >>> logits_of(torch.zeros(2, 80, 95)).shape
        torch.Size([2, 95])
    """
    found = output
    if isinstance(output, Mapping):
        found = output.get("logits")
    elif hasattr(output, "logits"):
        found = output.logits
    elif isinstance(output, tuple | list) and output:
        found = output[0]
    if not isinstance(found, Tensor):
        raise InputError(
            f"the model's output is of type {type(output).__name__}, but no class scores are found in it. "
            "Return a tensor, something with `logits`, or a tuple that begins with the scores."
        )
    return found[:, -1] if found.dim() == 3 else found
