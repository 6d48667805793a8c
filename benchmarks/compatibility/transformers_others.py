"""Models of sound, video, time series and of two kinds of input from the library ``transformers``."""

from __future__ import annotations

import torch

from .architecture import BATCH, Inputs, draw_tokens, normal
from .transformers_zoo import BODY, LABELS, PATCHES, TEXT, WORDS, add, zoo

ZOO = zoo()

SPEECH = {
    **BODY,
    **LABELS,
    "conv_dim": (16, 16),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 16,
    "mask_time_prob": 0.0,  # its masks are drawn by numpy, from the values
    "layerdrop": 0.0,
}
SPECTRUM = {"max_length": 32, "num_mel_bins": 16, "frequency_stride": 8, "time_stride": 8, "patch_size": 8}
WHISPER = {
    **WORDS,
    **LABELS,
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_layers": 1,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64,
    "num_mel_bins": 8,
    "max_source_positions": 16,
    "max_target_positions": 32,
    "classifier_proj_size": 16,
    "pad_token_id": 0,
    "use_cache": False,
}
SERIES = {
    "num_input_channels": 3,
    "num_targets": 10,
    "context_length": 32,
    "patch_length": 8,
    "patch_stride": 8,
    "d_model": 32,
}
TOWERS = {"text_config": {**TEXT, "eos_token_id": 2}, "vision_config": PATCHES}


def speech_and_text() -> Inputs:
    """Return spectra and tokens."""
    return {"input_features": torch.randn(BATCH, 8, 32), "decoder_input_ids": draw_tokens()}


def text_and_image() -> Inputs:
    """Return tokens and images."""
    return {"input_ids": draw_tokens(), "pixel_values": torch.randn(BATCH, 3, 32, 32)}


add(ZOO, "Wav2Vec2ForSequenceClassification", normal((400,)), SPEECH)
add(ZOO, "HubertForSequenceClassification", normal((400,)), SPEECH)
add(ZOO, "WavLMForSequenceClassification", normal((400,)), SPEECH)
add(ZOO, "ASTForAudioClassification", normal((32, 16)), BODY, LABELS, SPECTRUM)
add(ZOO, "WhisperForAudioClassification", normal((8, 32)), WHISPER)
add(ZOO, "WhisperForConditionalGeneration", speech_and_text, WHISPER)
add(ZOO, "CLIPModel", text_and_image, TOWERS, projection_dim=16)
add(ZOO, "ViltModel", text_and_image, WORDS, PATCHES)
add(ZOO, "TimesformerForVideoClassification", normal((2, 3, 16, 16)), PATCHES, image_size=16, num_frames=2)
add(
    ZOO,
    "VideoMAEForVideoClassification",
    normal((2, 3, 16, 16)),
    PATCHES,
    image_size=16,
    num_frames=2,
    tubelet_size=2,
)
add(
    ZOO,
    "PatchTSTForClassification",
    normal((32, 3)),
    SERIES,
    num_hidden_layers=1,
    num_attention_heads=4,
    ffn_dim=64,
)
add(ZOO, "PatchTSMixerForTimeSeriesClassification", normal((32, 3)), SERIES, num_layers=1)
