"""Language models from the library ``transformers``."""

from __future__ import annotations

from .architecture import tokens
from .transformers_zoo import BODY, CAUSAL, GROUPED, WORDS, add, zoo

ZOO = zoo()

GPT2 = {**WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "use_cache": False}
GPT_NEO = {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 8}
OPT = {**CAUSAL, "ffn_dim": 64, "max_position_embeddings": 64, "word_embed_proj_dim": 16}
MPT = {**WORDS, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64, "use_cache": False}
XGLM = {**WORDS, "d_model": 32, "ffn_dim": 64, "num_layers": 2, "attention_heads": 4, "use_cache": False}
QWEN_MOE = {"num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
MAMBA = {**WORDS, "hidden_size": 32, "num_hidden_layers": 2, "use_cache": False}
MAMBA2 = {**MAMBA, "state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4}

add(ZOO, "GPT2LMHeadModel", tokens(), GPT2)
add(ZOO, "GPTNeoForCausalLM", tokens(), CAUSAL, GPT_NEO, max_position_embeddings=64)
add(ZOO, "GPTNeoXForCausalLM", tokens(), CAUSAL)
add(ZOO, "GPTJForCausalLM", tokens(), GPT2, rotary_dim=4)
add(ZOO, "GPTBigCodeForCausalLM", tokens(), GPT2)
add(ZOO, "OpenAIGPTLMHeadModel", tokens(), GPT2)
add(ZOO, "CTRLLMHeadModel", tokens(), GPT2, dff=64)
add(ZOO, "CodeGenForCausalLM", tokens(), GPT2, rotary_dim=4)
add(ZOO, "OPTForCausalLM", tokens(), OPT)
add(ZOO, "BloomForCausalLM", tokens(), WORDS, hidden_size=32, n_layer=2, n_head=4, use_cache=False)
add(ZOO, "FalconForCausalLM", tokens(), CAUSAL)
add(ZOO, "MptForCausalLM", tokens(), MPT)
add(ZOO, "XGLMForCausalLM", tokens(), XGLM, max_position_embeddings=64)
add(ZOO, "BioGptForCausalLM", tokens(), CAUSAL, max_position_embeddings=64)
add(ZOO, "LlamaForCausalLM", tokens(), GROUPED)
add(ZOO, "MistralForCausalLM", tokens(), GROUPED)
add(ZOO, "Qwen2ForCausalLM", tokens(), GROUPED)
add(ZOO, "Qwen3ForCausalLM", tokens(), GROUPED, head_dim=8)
add(ZOO, "GemmaForCausalLM", tokens(), CAUSAL, num_key_value_heads=1, head_dim=8)
add(ZOO, "Gemma2ForCausalLM", tokens(), GROUPED, head_dim=8)
add(ZOO, "Gemma3ForCausalLM", tokens(), GROUPED, head_dim=8)
add(ZOO, "PhiForCausalLM", tokens(), CAUSAL)
add(ZOO, "Phi3ForCausalLM", tokens(), GROUPED)
add(ZOO, "CohereForCausalLM", tokens(), GROUPED)
add(ZOO, "OlmoForCausalLM", tokens(), GROUPED)
add(ZOO, "Olmo2ForCausalLM", tokens(), GROUPED)
add(ZOO, "StableLmForCausalLM", tokens(), GROUPED)
add(ZOO, "Starcoder2ForCausalLM", tokens(), GROUPED)
add(ZOO, "GraniteForCausalLM", tokens(), GROUPED)
add(ZOO, "SmolLM3ForCausalLM", tokens(), GROUPED)
add(ZOO, "NemotronForCausalLM", tokens(), GROUPED)
add(ZOO, "PersimmonForCausalLM", tokens(), CAUSAL)
add(ZOO, "MixtralForCausalLM", tokens(), GROUPED, num_local_experts=4)
add(ZOO, "Qwen2MoeForCausalLM", tokens(), GROUPED, QWEN_MOE, num_experts_per_tok=2)
add(ZOO, "MambaForCausalLM", tokens(), MAMBA, state_size=4)
add(ZOO, "Mamba2ForCausalLM", tokens(), MAMBA2)
add(ZOO, "RwkvForCausalLM", tokens(), WORDS, BODY, attention_hidden_size=32, use_cache=False)
add(
    ZOO,
    "RecurrentGemmaForCausalLM",
    tokens(),
    WORDS,
    BODY,
    num_hidden_layers=3,
    lru_width=32,
    use_cache=False,
)
