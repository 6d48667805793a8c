"""A vision transformer of `transformers`, small and with random weights, as a model for `widthwise run`.

Its parameters are facts about the data (``num_classes``, ``in_channels``, ``image_size``) and own options:

    $ widthwise run examples/digits-hf-vit.yaml
    $ widthwise run examples/digits-hasfl.yaml --model examples.hf_vit:vit
"""

from __future__ import annotations

from transformers import ViTConfig, ViTForImageClassification


def vit(
    num_classes: int, in_channels: int, image_size: tuple[int, int], hidden: int = 32, layers: int = 2
) -> ViTForImageClassification:
    """Return the classifier; ``hidden`` is the width of its stream."""
    return ViTForImageClassification(
        ViTConfig(
            num_labels=num_classes,
            num_channels=in_channels,
            image_size=image_size[0],
            patch_size=2,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            initializer_range=0.1,  # as torch has it for so few units; the default is for hundreds
        )
    )
