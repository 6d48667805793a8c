"""FEMNIST of the LEAF benchmark."""

from __future__ import annotations

from widthwise.tasks.dataset import Signature
from widthwise.tasks.datasets.emnist import CHARACTERS
from widthwise.tasks.images import ImageSource

# LEAF's polarity is dark ink on white; EMNIST's is the reverse (255 - x makes one of the other).
FEMNIST = ImageSource(
    name="femnist",
    signature=Signature("image", (1, 28, 28), 62),
    class_names=CHARACTERS,
    summary="handwritten characters with writer ids, 28x28 grey, dark ink on white, 62 classes; "
    "a fifth of each writer is held out",
    origin="Caldas et al., LEAF, arXiv 1812.01097; a folder femnist_sample holds 1,761 images of 28 writers",
    terms="derived from NIST Special Database 19 (public domain in the USA); hub copy BSD-2-Clause",
    id_name="writer",
    has_test=False,
    hub="flwrlabs/femnist",
    folders=("femnist", "femnist_sample"),
    label_columns=("label", "character"),
    id_column="writer_id",
    mean=(245.6,),
    std=(41.1,),
)
