"""EMNIST ByClass."""

from __future__ import annotations

import string

from widthwise.tasks.dataset import Signature
from widthwise.tasks.images import ImageSource

CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)

# No hub identifier: the copies of ByClass that are known there need a loading script, which the hub's client
# no longer runs. The raw files are transposed; whichever way the images stand, train and test agree.
EMNIST = ImageSource(
    name="emnist",
    signature=Signature("image", (1, 28, 28), 62),
    class_names=CHARACTERS,
    summary="EMNIST ByClass: 697,932 + 116,323 handwritten characters, 28x28 grey, light ink on black, "
    "62 classes",
    origin="Cohen, Afshar, Tapson, van Schaik, arXiv 1702.05373",
    terms="derived from NIST Special Database 19 (public domain in the USA)",
    folders=("emnist",),
    mean=(44.3,),
    std=(84.6,),
)
