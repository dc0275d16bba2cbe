"""Models as papers describe them."""

from __future__ import annotations

from slurmopt.planning.models.transformer import Transformer


def gpt(hidden: int, layers: int, heads: int, vocab: int = 51200, positions: int = 2048) -> Transformer:
    """A GPT as NVIDIA's papers have them: four times the hidden size in the MLP, a tied head, biases."""
    return Transformer(
        name=f"gpt {hidden} x {layers}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_size=hidden // heads,
        ffn=4 * hidden,
        vocab=vocab,
        gated=False,
        tied=True,
        rms_norm=False,
        attention=4 * hidden**2 + 4 * hidden,
        mlp=8 * hidden**2 + 5 * hidden,
        norms=4 * hidden,
        positions=positions * hidden,
        rest=2 * hidden,
    )
