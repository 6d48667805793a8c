"""How a raw sample becomes an input of a model: in words, and as code that needs numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_IMAGES = """\
def prepare(images):
    mean = np.array({mean}, dtype=np.float32).reshape(-1, 1, 1)
    std = np.array({std}, dtype=np.float32).reshape(-1, 1, 1)
    return (np.asarray(images, dtype=np.float32) - mean) / std
"""

_CHARACTERS = """\
def prepare(texts):
    lines = [text.replace("\\n", " ")[-{length}:] for text in texts]
    return np.array([[ord(character) - {first} for character in line] for line in lines], dtype=np.int64)
"""


@dataclass(frozen=True)
class Preparation:
    """What a deployed model must be given, bit for bit as in training and evaluation.

    Attributes:
        raw: What the raw samples are, as the end of a sentence.
        code: Python source of a function ``prepare``: raw samples -> a batch of inputs, with numpy as ``np``.
    """

    raw: str
    code: str


def of_images(shape: Sequence[int], mean: Sequence[float], std: Sequence[float]) -> Preparation:
    """Return the preparation of images that are held as bytes (``ArraySet``): (value - mean) / std.

    Args:
        shape: (C, H, W).
        mean: Of each channel, in units of a byte.
        std: Of each channel.

    Example:
        >>> import numpy as np
        >>> exec(of_images((1, 1, 2), [100.0], [50.0]).code)
        >>> prepare(np.array([[[[0, 250]]]], dtype=np.uint8)).tolist()
        [[[[-2.0, 3.0]]]]
    """
    channels, height, width = shape
    colour = "grey" if channels == 1 else "red, green and blue"
    raw = (
        f"images of {height} x {width} pixels as whole numbers from 0 to 255, "
        f"[batch, {channels}, {height}, {width}], {colour}"
    )
    return Preparation(raw, _IMAGES.format(mean=list(mean), std=list(std)))


def of_characters(length: int, first: int, last: int) -> Preparation:
    """Return the preparation of texts whose tokens are character codes counted from ``first``.

    Args:
        length: Characters of an input.
        first: Code of token 0.
        last: Code of the last token.
    """
    raw = (
        f"texts of at least {length} characters, of which the last {length} count; all of them newlines, "
        f"which become spaces, or characters from {chr(first)!r} to {chr(last)!r}"
    )
    return Preparation(raw, _CHARACTERS.format(length=length, first=first))
