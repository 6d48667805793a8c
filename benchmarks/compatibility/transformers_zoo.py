"""Classes of the library ``transformers`` with small random configurations: what those have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers
from torch import nn

from .architecture import CLASSES, VOCABULARY, Inputs, Zoo

BODY: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
LABELS: dict[str, Any] = {"num_labels": CLASSES}
WORDS: dict[str, Any] = {"vocab_size": VOCABULARY}
SPECIAL: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = {**WORDS, **LABELS, **BODY}
CAUSAL = {**WORDS, **SPECIAL, **BODY, "use_cache": False}
GROUPED = {**CAUSAL, "num_key_value_heads": 2}
PATCHES = {**LABELS, **BODY, "image_size": 32, "patch_size": 8}
STAGES = {**LABELS, "hidden_sizes": [16, 32], "depths": [1, 1]}


def zoo() -> Zoo:
    """Return an empty zoo of this family."""
    return Zoo("transformers")


def add(zoo: Zoo, head: str, inputs: Callable[[], Inputs], *sizes: dict[str, Any], **more: Any) -> None:
    """Add a class of the library, configured by ``sizes`` and ``more``."""

    def make() -> nn.Module:
        transformers.logging.set_verbosity_error()
        cls = getattr(transformers, head)
        model: nn.Module = cls(cls.config_class(**{k: v for d in (*sizes, more) for k, v in d.items()}))
        return model

    zoo.add(head, make, inputs)
