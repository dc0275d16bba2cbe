"""MFU and HFU: known numbers, and no number where something is not known."""

from __future__ import annotations

import pytest

from slurmopt.ledger.mfu import transformer_flops_per_token, utilisation


def test_palms_own_numbers() -> None:
    """PaLM 540B: 118 layers, 48 heads of size 256, sequences of 2048; 238.3 K tokens/s on 6144 TPU v4 with 275 TFLOP/s
    each is an MFU of 46.2 % with attention, 45.7 % without."""
    rate, seconds = 238.3e3, 100.0
    with_attention = transformer_flops_per_token(540.35e9, layers=118, heads=48, head_size=256, sequence=2048)
    assert utilisation(with_attention * rate * seconds, seconds, 275e12, 6144) == pytest.approx(0.462, abs=0.001)
    without = transformer_flops_per_token(540.35e9)
    assert utilisation(without * rate * seconds, seconds, 275e12, 6144) == pytest.approx(0.457, abs=0.001)


@pytest.mark.parametrize(
    ("flops", "seconds", "peak", "gpus"),
    [
        (None, 1.0, 1.0, 1),
        (1.0, 1.0, None, 1),
        (1.0, 0.0, 1.0, 1),
        (1.0, -1.0, 1.0, 1),
        (1.0, 1.0, 0.0, 1),
        (1, 1, 1, 0),
    ],
)
def test_what_is_not_known_gives_no_number(flops: float | None, seconds: float, peak: float | None, gpus: int) -> None:
    assert utilisation(flops, seconds, peak, gpus) is None


def test_a_gpu_that_did_nothing_is_a_measured_zero() -> None:
    assert utilisation(0.0, 10.0, 1e15) == 0.0
