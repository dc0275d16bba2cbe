"""The shape of a model out of the content of its config.json, as transformers writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurmopt.errors import ConfigError, one_line
from slurmopt.planning.models.transformer import Transformer

_MOST = 10**7
_LAYERS = ("num_hidden_layers", "n_layer")
_HIDDEN = ("hidden_size", "n_embd")
_HEADS = ("num_attention_heads", "n_head")
_FFN = ("intermediate_size", "ffn_dim", "n_inner")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_POSITIONS = ("n_positions", "max_position_embeddings")


@dataclass(frozen=True, kw_only=True)
class _Family:
    """What the config of a `model_type` does not tell: its default where it is left out, or how the model is made."""

    gated: bool = True
    rms_norm: bool = True
    norms: int = 2
    """Norms of the hidden size in each layer."""
    head_norms: bool = False
    """Norms of queries and keys, each of the size of a head."""
    width_norms: bool = False
    """The same, each as wide as all heads."""
    qkv_bias: bool | str = False
    """Whether there is one, or the config's key that says so."""
    out_bias: bool | str = False
    mlp_bias: bool | str = False
    absent_bias: bool = False
    """What the key of a bias is where it is left out."""
    tied: bool = False
    positions: int | None = None
    """Rows of the table of positions beyond those of the config; None: there is no table."""
    joint_qkv: bool = False
    """Whether one matrix makes queries, keys and values."""
    activation: str = ""
    """The config's `activation_function` where it is left out."""
    sinks: bool = False
    """Whether each head has a sink."""
    expert_bias: bool = False
    latent: bool = False
    """Whether keys and values are compressed (multi-head latent attention)."""


_PLAIN: dict[str, Any] = {"gated": False, "rms_norm": False, "mlp_bias": True, "qkv_bias": True, "out_bias": True}
_BY_KEY: dict[str, Any] = {"qkv_bias": "attention_bias", "out_bias": "attention_bias"}
_FAMILIES: dict[str, _Family] = {
    "llama": _Family(**_BY_KEY, mlp_bias="mlp_bias"),
    "mistral": _Family(),
    "mixtral": _Family(),
    "phi3": _Family(joint_qkv=True),
    "qwen2": _Family(qkv_bias=True),
    "qwen2_moe": _Family(qkv_bias="qkv_bias", absent_bias=True),
    "qwen3": _Family(**_BY_KEY, head_norms=True),
    "qwen3_moe": _Family(**_BY_KEY, head_norms=True),
    "gemma": _Family(**_BY_KEY, tied=True),
    "gemma2": _Family(**_BY_KEY, tied=True, norms=4),
    "gemma3_text": _Family(**_BY_KEY, tied=True, norms=4, head_norms=True),
    "olmo2": _Family(**_BY_KEY, width_norms=True),
    "olmoe": _Family(**_BY_KEY, width_norms=True),
    "gpt2": _Family(**_PLAIN, tied=True, positions=0, activation="gelu_new", joint_qkv=True),
    "gpt_neox": _Family(**{**_PLAIN, **_BY_KEY}, absent_bias=True, joint_qkv=True),
    "opt": _Family(**{**_PLAIN, "qkv_bias": "enable_bias", "out_bias": "enable_bias", "mlp_bias": "enable_bias"},
                   absent_bias=True, tied=True, positions=2),
    "starcoder2": _Family(**{**_PLAIN, "qkv_bias": "use_bias", "out_bias": "use_bias", "mlp_bias": "use_bias"},
                          absent_bias=True, tied=True),
    "gpt_oss": _Family(**_BY_KEY, absent_bias=True, sinks=True, expert_bias=True),
    "deepseek_v3": _Family(latent=True),
}  # fmt: skip
"""By the config's `model_type`. Each is compared with the model that transformers builds
(tests/planning/test_parameter_counts.py)."""


def transformer(config: Mapping[str, Any], name: str, place: str) -> Transformer:
    """The shape. `place`: the file, for messages. Raises ConfigError: what is wrong, where, and what would be valid."""
    nested = config.get("text_config")
    return _Reader(nested if isinstance(nested, Mapping) else config, place).transformer(name)


class _Reader:
    """Reads one config."""

    def __init__(self, config: Mapping[str, Any], place: str) -> None:
        self._config, self._place = config, place
        kind = config.get("model_type")
        if not isinstance(kind, str) or kind not in _FAMILIES:
            what = "is missing" if kind is None else f"{one_line(str(kind))[:60]!r} is not known"
            raise ConfigError(f"{what}; valid: {', '.join(sorted(_FAMILIES))}", f"{place}: model_type")
        self._family = _FAMILIES[kind]
        self._hidden, self._heads = self._size(_HIDDEN), self._size(_HEADS)
        self._kv_heads = self._size(("num_key_value_heads",), self._heads)
        self._head = self._size(("head_dim",), max(1, self._hidden // self._heads))
        if self._heads % self._kv_heads:
            raise ConfigError(f"{self._kv_heads} does not divide {self._heads} heads", f"{place}: num_key_value_heads")

    def transformer(self, name: str) -> Transformer:
        family, hidden = self._family, self._hidden
        layers, vocab = self._size(_LAYERS), self._size(("vocab_size",))
        ffn, norm = self._size(_FFN, 4 * hidden), hidden * (1 if family.rms_norm else 2)
        tied = self._config.get("tie_word_embeddings")
        if tied is not None and not isinstance(tied, bool):
            raise ConfigError(
                f"{one_line(repr(tied))[:40]} is not valid; valid: true, false", f"{self._place}: tie_word_embeddings"
            )
        return Transformer(
            name=name,
            layers=layers,
            hidden=hidden,
            heads=self._heads,
            kv_heads=self._kv_heads,
            head_size=self._value_head() if family.latent else self._head,
            ffn=ffn,
            vocab=vocab,
            gated=family.gated,
            tied=family.tied if tied is None else tied,
            rms_norm=family.rms_norm,
            attention=self._latent_attention() if family.latent else self._attention(),
            mlp=self._mlp(ffn, self._has(family.mlp_bias)),
            norms=family.norms * norm,
            python_gelu=self._config.get("activation_function", family.activation) == "gelu_new",
            joint_qkv=family.joint_qkv,
            positions=0 if family.positions is None else (self._size(_POSITIONS) + family.positions) * hidden,
            longest=self._longest(),
            rest=norm,
            **self._experts(layers),
        )

    def _size(self, keys: tuple[str, ...], absent: int | None = None) -> int:
        key = next((key for key in keys if self._config.get(key) is not None), None)
        if key is None and absent is not None:
            return absent
        value = None if key is None else self._config[key]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MOST:
            what = "is missing" if key is None else f"{one_line(repr(value))[:40]} is not valid"
            raise ConfigError(f"{what}; valid: a whole number, 1 to {_MOST:,}", f"{self._place}: {key or keys[0]}")
        return value

    def _longest(self) -> int | None:
        found = (self._config.get(key) for key in _POSITIONS)
        return next((each for each in found if type(each) is int and each > 0), None)

    def _has(self, bias: bool | str) -> bool:
        if isinstance(bias, bool):
            return bias
        value = self._config.get(bias)
        return self._family.absent_bias if value is None else bool(value)

    def _attention(self) -> int:
        query, key_value = self._heads * self._head, self._kv_heads * self._head
        count = self._hidden * (2 * query + 2 * key_value)
        count += (query + 2 * key_value) if self._has(self._family.qkv_bias) else 0
        count += self._hidden if self._has(self._family.out_bias) else 0
        count += 2 * self._head if self._family.head_norms else 0
        count += query + key_value if self._family.width_norms else 0
        return count + (self._heads if self._family.sinks else 0)

    def _value_head(self) -> int:
        return self._size(("v_head_dim",), self._head)

    def _latent_attention(self) -> int:
        rotary, plain = self._size(("qk_rope_head_dim",)), self._size(("qk_nope_head_dim",))
        rank, value = self._size(("kv_lora_rank",)), self._value_head()
        query = self._heads * (plain + rotary)
        if self._config.get("q_lora_rank") is None:
            queries = self._hidden * query
        else:
            low = self._size(("q_lora_rank",))
            queries = self._hidden * low + low + low * query
        keys = self._hidden * (rank + rotary) + rank + rank * self._heads * (plain + value)
        return queries + keys + self._heads * value * self._hidden

    def _mlp(self, ffn: int, bias: bool) -> int:
        matrices = 3 if self._family.gated else 2
        biases = ((matrices - 1) * ffn + self._hidden) if bias else 0
        return matrices * self._hidden * ffn + biases

    def _experts(self, layers: int) -> dict[str, int]:
        if not any(self._config.get(key) is not None for key in _EXPERTS):
            return {}
        experts, active = self._size(_EXPERTS), self._size(("num_experts_per_tok",))
        ffn = self._size(("moe_intermediate_size", "intermediate_size"))
        if active > experts:
            raise ConfigError(f"{active} is more than the {experts} experts", f"{self._place}: num_experts_per_tok")
        shared, gate = self._shared(ffn)
        router = self._hidden * experts + (experts if self._family.expert_bias else 0)
        return {
            "experts": experts,
            "active_experts": active,
            "expert_ffn": ffn,
            "expert": self._mlp(ffn, self._family.expert_bias),
            "router": router + gate + (self._mlp(shared, False) if shared else 0),
            "shared_ffn": shared,
            "dense_layers": self._dense(layers),
        }

    def _shared(self, ffn: int) -> tuple[int, int]:
        """Width of the experts that all tokens pass, and parameters of their gate."""
        if self._config.get("shared_expert_intermediate_size") is not None:
            return self._size(("shared_expert_intermediate_size",)), self._hidden
        if self._config.get("n_shared_experts"):
            return self._size(("n_shared_experts",)) * ffn, 0
        return 0, 0

    def _dense(self, layers: int) -> int:
        first, only = self._config.get("first_k_dense_replace"), self._config.get("mlp_only_layers")
        step = self._size(("decoder_sparse_step",), 1)
        dense = set(only) if isinstance(only, list) else set()
        dense |= set(range(first)) if isinstance(first, int) else set()
        return sum(layer in dense or (layer + 1) % step != 0 for layer in range(layers))
