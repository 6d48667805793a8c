"""All architectures of the table, in its order."""

from __future__ import annotations

from . import torch_zoo, written_images, written_others
from . import transformers_decoders as decoders
from . import transformers_encoders as encoders
from . import transformers_images as images
from . import transformers_others as others
from .architecture import Architecture

ZOOS = (
    images.ZOO,
    encoders.ZOO,
    decoders.ZOO,
    others.ZOO,
    torch_zoo.ZOO,
    written_images.ZOO,
    written_others.ZOO,
)
ARCHITECTURES: dict[str, Architecture] = {one.name: one for zoo in ZOOS for one in zoo}
