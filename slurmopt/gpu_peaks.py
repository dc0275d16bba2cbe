"""The peaks of GPUs, dense BF16 and bandwidth of memory, by the name that NVML and torch give."""

from __future__ import annotations

import re

_Table = tuple[tuple[frozenset[str], float], ...]
"""The words that the name of a GPU must have, and its value."""


def _by_words(*rows: tuple[str, float]) -> _Table:
    return tuple((frozenset(words.split()), value) for words, value in rows)


_PEAKS = _by_words(
    ("A100", 312.0),
    ("A30", 165.0),
    ("A40", 149.7),
    ("A6000", 154.85),
    ("L4", 121.0),
    ("L40", 181.05),
    ("L40S", 362.05),
    ("H100 HBM3", 989.0),  # the name of the SXM module
    ("H100 SXM", 989.0),
    ("H100 SXM5", 989.0),
    ("H100 PCIE", 756.0),
    ("H100 NVL", 835.0),
    ("H200", 989.0),
    ("H20", 148.0),
    ("B200", 2250.0),
    ("B300", 2250.0),
    ("GB200", 2500.0),
    ("GB300", 2500.0),
    ("MI250X", 191.5),  # of one GCD, which is one device
    ("MI300X", 1300.0),
    ("MI325X", 1300.0),
    ("MI355X", 2500.0),
)
_BANDWIDTHS = _by_words(
    ("A100 40GB", 1.555),
    ("A100 SXM4 80GB", 2.039),
    ("A100 PCIE 80GB", 1.935),
    ("A30", 0.933),
    ("A40", 0.696),
    ("A6000", 0.768),
    ("L4", 0.3),
    ("L40", 0.864),
    ("L40S", 0.864),
    ("H100 HBM3", 3.35),
    ("H100 SXM", 3.35),
    ("H100 SXM5", 3.35),
    ("H100 PCIE", 2.0),
    ("H100 NVL", 3.9),
    ("H200", 4.8),
    ("H20", 4.0),
    ("B200", 8.0),
    ("B300", 8.0),
    ("GB200", 8.0),
    ("GB300", 8.0),
    ("MI250X", 1.6),  # of one GCD
    ("MI300X", 5.3),
    ("MI325X", 6.0),
    ("MI355X", 8.0),
)
_PARTS = frozenset({"MIG"})
"""Words that say that the device is a part of the GPU."""


def dense_bf16_tflops(name: str) -> float | None:
    """The peak in TFLOP/s of a GPU of that name, such as "NVIDIA H100 80GB HBM3"; None where it is not known.

    Whole words are compared, without regard to case, and never a part of one: L40S is not L40. There is no default:
    the H100 needs its form (HBM3 or SXM, PCIe, NVL), and a MIG slice has no peak. The numbers are dense ones, without
    the factor of two for sparsity that data sheets print.

    Sources: torchtitan's table `get_peak_flops` (A100, A6000, H100, H200, H20, B200, B300, GB200, GB300, MI250X,
    MI300X, MI325X, MI355X), and NVIDIA's data sheets (A30, A40, L4, L40, L40S).
    """
    return _found(name, _PEAKS)


def memory_bandwidth(name: str) -> float | None:
    """The bandwidth of the memory of a GPU of that name in bytes per second; None where it is not known.

    As in the vendors' data sheets; an A100 needs the size of its memory, and with 80 GB its form.
    """
    terabytes = _found(name, _BANDWIDTHS)
    return None if terabytes is None else terabytes * 1e12


def _found(name: str, table: _Table) -> float | None:
    words = frozenset(re.findall(r"[A-Z0-9]+", name.upper()))
    if words & _PARTS:
        return None
    found = {value for needed, value in table if needed <= words}
    return found.pop() if len(found) == 1 else None
