"""Fashion-MNIST."""

from __future__ import annotations

from widthwise.tasks.dataset import Signature
from widthwise.tasks.images import ImageSource

FASHION_MNIST = ImageSource(
    name="fashion-mnist",
    signature=Signature("image", (1, 28, 28), 10),
    class_names=(
        "T-shirt/top", "trouser", "pullover", "dress", "coat",
        "sandal", "shirt", "sneaker", "bag", "ankle boot",
    ),
    summary="60,000 + 10,000 pictures of clothing, 28x28 grey, light on black, ten classes",
    origin="Xiao, Rasul, Vollgraf, arXiv 1708.07747",
    terms="MIT licence",
    augmentable=True,
    hub="zalando-datasets/fashion_mnist",
    folders=("fashion-mnist", "fashion_mnist"),
    mean=(72.9,),
    std=(90.0,),
)  # fmt: skip
