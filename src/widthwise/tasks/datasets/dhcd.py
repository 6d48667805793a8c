"""Devanagari handwritten characters."""

from __future__ import annotations

from widthwise.tasks.dataset import Signature
from widthwise.tasks.images import ImageSource

CONSONANTS = (
    "ka", "kha", "ga", "gha", "kna", "cha", "chha", "ja", "jha", "yna", "taamatar", "thaa",
    "daa", "dhaa", "adna", "tabala", "tha", "da", "dha", "na", "pa", "pha", "ba", "bha",
    "ma", "yaw", "ra", "la", "waw", "motosaw", "petchiryakha", "patalosaw", "ha", "chhya", "tra", "gya",
)  # fmt: skip

# A set of its own: 46 balanced Devanagari classes, so a result on it is no EMNIST result.
DHCD = ImageSource(
    name="dhcd",
    signature=Signature("image", (1, 28, 28), 46),
    class_names=(*(f"digit_{i}" for i in range(10)), *CONSONANTS),
    summary="78,200 + 13,800 handwritten Devanagari characters, 28x28 grey, light ink on black, 46 classes",
    origin="Acharya, Pant, Gyawali, SKIMA 2015 (the 2-pixel frame of the 32x32 originals cut off)",
    terms="UCI Machine Learning Repository, CC BY 4.0",
    folders=("dhcd",),
    mean=(80.1,),
    std=(105.9,),
)
