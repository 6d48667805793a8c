"""Models of images from the library ``transformers``."""

from __future__ import annotations

from .architecture import image
from .transformers_zoo import LABELS, PATCHES, STAGES, add, zoo

ZOO = zoo()

FOUR = {**LABELS, "hidden_sizes": [16, 32, 32, 64], "depths": [1] * 4}
PYRAMID = {**FOUR, "num_attention_heads": [1, 2, 2, 4]}
SWIN = {**LABELS, "image_size": 32, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4}
HGNET = {
    "stem_channels": [3, 8, 16],
    "stage_in_channels": [16, 32],
    "stage_mid_channels": [8, 16],
    "stage_out_channels": [32, 64],
    "stage_num_blocks": [1, 1],
    "stage_downsample": [False, True],
    "stage_light_block": [False, True],
    "stage_kernel_size": [3, 5],
    "stage_numb_of_layers": [2, 2],
    "hidden_sizes": [32, 64],
    "depths": [1, 1],
}
FOCAL = {"embed_dim": 16, "focal_levels": [2, 2], "focal_windows": [3, 3]}
LEVIT = {
    "hidden_sizes": [32, 48, 64],
    "num_attention_heads": [2, 3, 4],
    "depths": [1, 1, 1],
    "key_dim": [8, 8, 8],
}
MOBILEVIT = {"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 64]}
MAE = {
    "decoder_hidden_size": 16,
    "decoder_num_hidden_layers": 1,
    "decoder_num_attention_heads": 4,
    "decoder_intermediate_size": 32,
}
CVT = {"embed_dim": [16, 32, 32], "num_heads": [1, 2, 4], "depth": [1, 2, 3]}

add(ZOO, "ResNetForImageClassification", image(), STAGES, embedding_size=16, layer_type="basic")
add(ZOO, "ResNetModel", image(), STAGES, embedding_size=16, layer_type="bottleneck")
add(ZOO, "RegNetForImageClassification", image(), STAGES, embedding_size=16, groups_width=8)
add(ZOO, "ConvNextForImageClassification", image(), STAGES, num_stages=2)
add(ZOO, "ConvNextV2ForImageClassification", image(), STAGES, num_stages=2)
add(
    ZOO,
    "MobileNetV1ForImageClassification",
    image(),
    LABELS,
    depth_multiplier=0.25,
    classifier_dropout_prob=0.2,
)
add(ZOO, "MobileNetV2ForImageClassification", image(), LABELS, depth_multiplier=0.5)
add(
    ZOO,
    "EfficientNetForImageClassification",
    image(),
    LABELS,
    width_coefficient=0.5,
    depth_coefficient=0.3,
    hidden_dim=640,
)
add(
    ZOO,
    "BitForImageClassification",
    image(),
    STAGES,
    embedding_size=16,
    layer_type="preactivation",
    num_groups=4,
)
add(ZOO, "PoolFormerForImageClassification", image(64), FOUR)
add(ZOO, "HGNetV2ForImageClassification", image(64), LABELS, HGNET, embedding_size=16)
add(ZOO, "FocalNetForImageClassification", image(), STAGES, FOCAL, image_size=32)

add(ZOO, "ViTForImageClassification", image(), PATCHES)
add(ZOO, "DeiTForImageClassification", image(), PATCHES)
add(ZOO, "BeitForImageClassification", image(), PATCHES)
add(ZOO, "Dinov2ForImageClassification", image(), PATCHES)
add(ZOO, "Dinov2WithRegistersForImageClassification", image(), PATCHES)
add(ZOO, "ViTMSNForImageClassification", image(), PATCHES)
add(ZOO, "ViTMAEForPreTraining", image(), PATCHES, MAE)
add(ZOO, "SwinForImageClassification", image(), SWIN)
add(ZOO, "Swinv2ForImageClassification", image(), SWIN)
add(ZOO, "SwiftFormerForImageClassification", image(64), LABELS, depths=[1] * 4, embed_dims=[16, 16, 32, 32])
add(ZOO, "PvtForImageClassification", image(64), PYRAMID, image_size=64)
add(ZOO, "PvtV2ForImageClassification", image(64), PYRAMID, image_size=64)
add(ZOO, "CvtForImageClassification", image(), LABELS, CVT)
add(ZOO, "LevitForImageClassification", image(64), LABELS, LEVIT, image_size=64)
add(ZOO, "MobileViTForImageClassification", image(64), LABELS, MOBILEVIT, image_size=64)
add(ZOO, "MobileViTV2ForImageClassification", image(64), LABELS, image_size=64, width_multiplier=0.25)
add(ZOO, "SegformerForSemanticSegmentation", image(64), PYRAMID, decoder_hidden_size=16)
add(ZOO, "YolosForObjectDetection", image(), PATCHES, image_size=[32, 32], num_detection_tokens=4)
add(ZOO, "SiglipVisionModel", image(), PATCHES)
add(ZOO, "CLIPVisionModelWithProjection", image(), PATCHES, projection_dim=16)
