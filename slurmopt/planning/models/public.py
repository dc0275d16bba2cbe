"""The shapes of public models by name, out of what their config.json says."""

from __future__ import annotations

from typing import Any

from slurmopt.planning.models.config_file import transformer
from slurmopt.planning.models.transformer import Transformer


def _decoder(
    model_type: str, hidden: int, layers: int, heads: int, kv: int, ffn: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        **more,
    }


def _gpt2(hidden: int, layers: int, heads: int, positions: int = 1024) -> dict[str, Any]:
    sizes = {"n_embd": hidden, "n_layer": layers, "n_head": heads, "n_positions": positions}
    return {"model_type": "gpt2", "vocab_size": 50257, **sizes}


_CONFIGS = {
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "gpt3-175b": _gpt2(12288, 96, 96, 2048),  # its paper: 2005.14165, table 2.1
    "pythia-6.9b": _decoder("gpt_neox", 4096, 32, 32, 32, 16384, 50432),
    "llama-2-7b": _decoder("llama", 4096, 32, 32, 32, 11008, 32000),
    "llama-2-13b": _decoder("llama", 5120, 40, 40, 40, 13824, 32000),
    "llama-2-70b": _decoder("llama", 8192, 80, 64, 8, 28672, 32000),
    "llama-3.2-1b": _decoder("llama", 2048, 16, 32, 8, 8192, 128256, tie_word_embeddings=True),
    "llama-3.2-3b": _decoder("llama", 3072, 28, 24, 8, 8192, 128256, tie_word_embeddings=True),
    "llama-3-8b": _decoder("llama", 4096, 32, 32, 8, 14336, 128256),
    "llama-3-70b": _decoder("llama", 8192, 80, 64, 8, 28672, 128256),
    "llama-3.1-405b": _decoder("llama", 16384, 126, 128, 8, 53248, 128256),
    "mistral-7b": _decoder("mistral", 4096, 32, 32, 8, 14336, 32000),
    "mixtral-8x7b": _decoder(
        "mixtral", 4096, 32, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2
    ),
    "qwen2.5-0.5b": _decoder("qwen2", 896, 24, 14, 2, 4864, 151936, tie_word_embeddings=True),
    "qwen2.5-7b": _decoder("qwen2", 3584, 28, 28, 4, 18944, 152064),
    "qwen2.5-72b": _decoder("qwen2", 8192, 80, 64, 8, 29568, 152064),
    "qwen3-8b": _decoder("qwen3", 4096, 36, 32, 8, 12288, 151936, head_dim=128),
    "qwen3-30b-a3b": _decoder(
        "qwen3_moe", 2048, 48, 32, 4, 6144, 151936, head_dim=128,
        moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8,
    ),
    "gemma-2-9b": _decoder("gemma2", 3584, 42, 16, 8, 14336, 256000, head_dim=256),
    "phi-3-mini": _decoder("phi3", 3072, 32, 32, 32, 8192, 32064),
    "olmo-2-7b": _decoder("olmo2", 4096, 32, 32, 32, 11008, 100352),
    "gpt-oss-20b": _decoder(
        "gpt_oss", 2880, 24, 64, 8, 2880, 201088, head_dim=64, num_local_experts=32, num_experts_per_tok=4
    ),
    "gpt-oss-120b": _decoder(
        "gpt_oss", 2880, 36, 64, 8, 2880, 201088, head_dim=64, num_local_experts=128, num_experts_per_tok=4
    ),
    "deepseek-v3": _decoder(
        "deepseek_v3", 7168, 61, 128, 128, 18432, 129280, q_lora_rank=1536, kv_lora_rank=512, qk_rope_head_dim=64,
        qk_nope_head_dim=128, v_head_dim=128, moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1,
        num_experts_per_tok=8, first_k_dense_replace=3,
    ),
}  # fmt: skip
_SHORT = {
    "llama-8b": "llama-3-8b",
    "llama-70b": "llama-3-70b",
    "llama-405b": "llama-3.1-405b",
    "llama-7b": "llama-2-7b",
}

NAMES = (*_CONFIGS, *_SHORT)
"""The names of all models, the short ones last."""


def public_config(name: str) -> dict[str, Any] | None:
    """What the config.json of a public model says of its shape; None for a name that is not among them."""
    config = _CONFIGS.get(_SHORT.get(name, name))
    return None if config is None else dict(config)


def public_model(name: str) -> Transformer | None:
    """The shape of a public model; None for a name that is not among them."""
    config, full = public_config(name), _SHORT.get(name, name)
    return None if config is None else transformer(config, full, full)
