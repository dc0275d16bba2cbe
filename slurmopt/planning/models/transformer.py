"""The shape of a decoder: what formulas need of a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A decoder with causal attention. Sizes are counts of elements; parameters are those of one layer unless a name
    says otherwise."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    """Width of the dense MLP."""
    vocab: int
    gated: bool
    """Whether the MLP has a gate (SwiGLU), so three matrices and not two."""
    tied: bool
    """Whether the head is the embedding."""
    rms_norm: bool
    """Whether norms are RMSNorm, else LayerNorm."""
    attention: int
    """Parameters of attention, its biases and norms of queries and keys included."""
    mlp: int
    """Parameters of the dense MLP."""
    norms: int
    """Parameters of the norms."""
    python_gelu: bool = False
    """Whether transformers computes its GELU in Python, operation by operation."""
    joint_qkv: bool = False
    """Whether one matrix makes queries, keys and values."""
    positions: int = 0
    """Parameters of a table of positions, in the whole model."""
    longest: int | None = None
    """The longest sequence that the model is made for; None where that is not known."""
    rest: int = 0
    """Further parameters of the whole model, such as the last norm."""
    experts: int = 0
    active_experts: int = 0
    expert_ffn: int = 0
    """Width of an expert; 0 without experts."""
    expert: int = 0
    """Parameters of an expert."""
    router: int = 0
    """Parameters of a layer's router, and of experts that all tokens pass."""
    shared_ffn: int = 0
    """Width of the experts that all tokens pass."""
    dense_layers: int = 0
    """Layers of a model with experts that have the dense MLP."""

    def too_long(self, sequence: int) -> str | None:
        """What is wrong with a sequence of so many tokens; None if nothing is."""
        if self.longest is None or sequence <= self.longest:
            return None
        return f"a sequence of {sequence:,} tokens is longer than the {self.longest:,} that {self.name} is made for"

    @property
    def sparse_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def embedding(self) -> int:
        """Parameters of the embedding."""
        return self.vocab * self.hidden

    @property
    def layer_parameters(self) -> float:
        """Parameters of a layer; the mean, where some have experts and others do not."""
        sparse = self.router + self.experts * self.expert
        share = self.sparse_layers / self.layers
        return self.attention + self.norms + (1 - share) * self.mlp + share * sparse

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        outside = self.embedding * (1 if self.tied else 2) + self.positions + self.rest
        return outside + round(self.layers * self.layer_parameters)

    @property
    def active_parameters(self) -> int:
        """Parameters that each token passes."""
        return self.parameters - self.sparse_layers * (self.experts - self.active_experts) * self.expert

    @property
    def matrix_parameters(self) -> int:
        """Parameters by which each token is multiplied: the active ones without the embedding's look-up and positions,
        with the head."""
        looked_up = self.positions + (0 if self.tied else self.embedding)
        return self.active_parameters - looked_up

    @property
    def active_ffn(self) -> float:
        """Width of the MLP that a token passes; the mean over layers."""
        share = self.sparse_layers / self.layers
        return (1 - share) * self.ffn + share * (self.active_experts * self.expert_ffn + self.shared_ffn)


def of_parameters(parameters: float, vocab: int = 32_000, name: str | None = None) -> Transformer:
    """A Llama-like model of about so many parameters, for a model that does not exist yet.

    Heads of 128 elements, one for each 128 of the hidden size, 8 of keys and values from 64 heads on, an MLP of 8/3 the
    hidden size, a layer for each 128 of it: the proportions of Llama 2.
    """
    best = min(
        (_llama_like(128 * heads, vocab) for heads in range(2, 257)), key=lambda m: abs(m.parameters - parameters)
    )
    layers = max(1, round((parameters - 2 * best.embedding - best.rest) / best.layer_parameters))
    return _llama_like(best.hidden, vocab, layers, name or f"{parameters:.3g} parameters")


def _llama_like(hidden: int, vocab: int, layers: int | None = None, name: str = "") -> Transformer:
    heads = max(1, hidden // 128)
    kv_heads = 8 if heads >= 64 and heads % 8 == 0 else heads
    ffn = -(-8 * hidden // 3 // 256) * 256
    return Transformer(
        name=name,
        layers=max(1, hidden // 128) if layers is None else layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=128,
        ffn=ffn,
        vocab=vocab,
        gated=True,
        tied=False,
        rms_norm=True,
        attention=hidden * 128 * (2 * heads + 2 * kv_heads),
        mlp=3 * hidden * ffn,
        norms=2 * hidden,
        rest=hidden,
    )
