"""Model FLOPs utilisation (MFU) and hardware FLOPs utilisation (HFU): which part of the GPUs' peak a training used."""

from __future__ import annotations


def utilisation(flops: float | None, seconds: float, peak: float | None, gpus: float = 1.0) -> float | None:
    """`flops` done in `seconds`, as a part (0..1) of what `gpus` GPUs with `peak` FLOP/s each could have done then.

    With the operations of the model it is MFU, with those that the hardware executed, recomputation included, HFU
    (Chowdhery et al., PaLM, 2022, appendix B). `peak` is the dense peak of the precision that the model computes in.
    None ("unknown") where the operations were not counted, or the GPU's peak is not known.
    """
    if flops is None or peak is None or not (seconds > 0 and peak > 0 and gpus > 0):
        return None
    return flops / (seconds * peak * gpus)


def transformer_flops_per_token(
    parameters: float, *, layers: int = 0, heads: int = 0, head_size: int = 0, sequence: int = 0
) -> float:
    """FLOPs of a decoder's forward and backward for each token: 6N + 12·L·H·Q·T (PaLM, appendix B).

    N parameters, L layers with H attention heads of size Q, T tokens in a sequence. Attention counts in full, as if no
    position were masked; nothing is counted twice for activation checkpointing.
    """
    return 6.0 * parameters + 12.0 * layers * heads * head_size * sequence
