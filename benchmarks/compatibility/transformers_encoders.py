"""Text models with an encoder from the library ``transformers``, some with a decoder beside it."""

from __future__ import annotations

from typing import Any

from .architecture import Inputs, draw_tokens, tokens
from .transformers_zoo import BODY, LABELS, SPECIAL, TEXT, WORDS, add, zoo

ZOO = zoo()

DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
DEBERTA2 = {**DEBERTA, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True}
FNET = {key: value for key, value in TEXT.items() if key != "num_attention_heads"}
SQUEEZED = {f"{part}_groups": 2 for part in ("q", "k", "v", "intermediate", "output")}
CANINE = {"local_transformer_stride": 16, "num_hash_buckets": 64, "downsampling_rate": 4}
FUNNEL = {"d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64, "block_sizes": [1, 1]}
PERCEIVER = {
    "num_latents": 8,
    "d_latents": 32,
    "d_model": 32,
    "num_blocks": 1,
    "num_self_attends_per_block": 1,
    "num_self_attention_heads": 4,
    "num_cross_attention_heads": 4,
}
T5 = {**WORDS, "d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 64, "use_cache": False}
BART: dict[str, Any] = {
    **WORDS,
    **LABELS,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "use_cache": False,
}
PROPHET = {
    **WORDS,
    "hidden_size": 32,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "num_encoder_attention_heads": 4,
    "num_decoder_attention_heads": 4,
    "max_position_embeddings": 64,
    "use_cache": False,
}
PAIR = tokens("input_ids", "decoder_input_ids")


def ended() -> Inputs:
    """Return tokens that end with the one for the end."""
    found = draw_tokens()
    found[:, -1] = SPECIAL["eos_token_id"]
    return (found,)


add(ZOO, "BertForSequenceClassification", tokens(), TEXT)
add(ZOO, "BertForMaskedLM", tokens(), TEXT)
add(ZOO, "RobertaForSequenceClassification", tokens(), TEXT, max_position_embeddings=64)
add(ZOO, "XLMRobertaForTokenClassification", tokens(), TEXT, max_position_embeddings=64)
add(
    ZOO,
    "DistilBertForSequenceClassification",
    tokens(),
    WORDS,
    LABELS,
    dim=32,
    n_layers=2,
    n_heads=4,
    hidden_dim=64,
)
add(ZOO, "AlbertForSequenceClassification", tokens(), TEXT, embedding_size=16)
add(ZOO, "ElectraForSequenceClassification", tokens(), TEXT, embedding_size=16)
add(ZOO, "MobileBertForSequenceClassification", tokens(), TEXT, embedding_size=16, intra_bottleneck_size=16)
add(ZOO, "DebertaForSequenceClassification", tokens(), TEXT, DEBERTA)
add(ZOO, "DebertaV2ForSequenceClassification", tokens(), TEXT, DEBERTA2)
add(ZOO, "MPNetForSequenceClassification", tokens(), TEXT)
add(
    ZOO,
    "ModernBertForSequenceClassification",
    tokens(),
    TEXT,
    SPECIAL,
    global_attn_every_n_layers=2,
    local_attention=8,
    cls_token_id=1,
    sep_token_id=2,
)
add(ZOO, "RoFormerForSequenceClassification", tokens(), TEXT, embedding_size=16)
add(ZOO, "ConvBertForSequenceClassification", tokens(), TEXT, embedding_size=16, conv_kernel_size=3)
add(ZOO, "SqueezeBertForSequenceClassification", tokens(), TEXT, SQUEEZED, embedding_size=32)
add(ZOO, "FNetForSequenceClassification", tokens(), FNET)
add(
    ZOO,
    "NystromformerForSequenceClassification",
    tokens(length=16),
    TEXT,
    num_landmarks=4,
    segment_means_seq_len=16,
)
add(ZOO, "YosoForSequenceClassification", tokens(), TEXT, use_expectation=True)
add(
    ZOO,
    "LongformerForSequenceClassification",
    tokens(length=16),
    TEXT,
    attention_window=8,
    max_position_embeddings=64,
)
add(ZOO, "BigBirdForSequenceClassification", tokens(), TEXT, attention_type="original_full")
add(ZOO, "CanineForSequenceClassification", tokens(length=32), BODY, LABELS, CANINE)
add(
    ZOO,
    "XLNetForSequenceClassification",
    tokens(),
    WORDS,
    LABELS,
    d_model=32,
    n_layer=2,
    n_head=4,
    d_inner=64,
)
add(ZOO, "FunnelForSequenceClassification", tokens(), WORDS, LABELS, FUNNEL, num_decoder_layers=1)
add(ZOO, "LayoutLMForSequenceClassification", tokens(), TEXT)
add(ZOO, "CLIPTextModel", tokens(), TEXT, projection_dim=16, eos_token_id=2)
add(
    ZOO,
    "EsmForSequenceClassification",
    tokens(),
    TEXT,
    pad_token_id=1,
    mask_token_id=3,
    position_embedding_type="rotary",
)
add(ZOO, "PerceiverForSequenceClassification", tokens(), WORDS, LABELS, PERCEIVER, max_position_embeddings=64)
add(ZOO, "T5ForConditionalGeneration", PAIR, T5)
add(ZOO, "T5EncoderModel", tokens(), T5)
add(ZOO, "MT5ForConditionalGeneration", PAIR, T5)
add(ZOO, "BartForSequenceClassification", ended, BART, SPECIAL)
add(ZOO, "BartForConditionalGeneration", PAIR, BART)
add(ZOO, "MBartForConditionalGeneration", PAIR, BART)
add(ZOO, "PegasusForConditionalGeneration", PAIR, BART)
add(ZOO, "MarianMTModel", PAIR, BART, pad_token_id=0)
add(ZOO, "BlenderbotForConditionalGeneration", PAIR, BART)
add(ZOO, "M2M100ForConditionalGeneration", PAIR, BART, encoder_layerdrop=0.0, decoder_layerdrop=0.0)
add(ZOO, "ProphetNetForConditionalGeneration", PAIR, PROPHET)
