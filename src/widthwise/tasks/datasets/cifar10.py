"""CIFAR-10."""

from __future__ import annotations

from widthwise.tasks.dataset import Signature
from widthwise.tasks.images import ImageSource

CIFAR10 = ImageSource(
    name="cifar10",
    signature=Signature("image", (3, 32, 32), 10),
    class_names=(
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    ),
    summary="50,000 + 10,000 colour photographs, 32x32, ten classes",
    origin="Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    terms="no formal licence; customarily used for research with a citation",
    augmentable=True,
    hub="uoft-cs/cifar10",
    folders=("cifar10",),
    image_columns=("img", "image"),
    mean=(125.3, 123.0, 113.9),
    std=(63.0, 62.1, 66.7),
)  # fmt: skip
