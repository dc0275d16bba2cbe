"""GPUs and nodes: what formulas need of them, with sources."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurmopt.errors import ConfigError, one_line
from slurmopt.gpu_peaks import dense_bf16_tflops, memory_bandwidth
from slurmopt.planning.ranges import Range

_GIB = 2**30
_GBIT = 1e9 / 8
_NETWORK = 0.96
"""The part of a network's line rate that NCCL counts on: 12 GB/s for each 100 Gbit/s (src/graph/topo.h)."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One kind of GPU. Rates are dense ones, without the factor of two for sparsity that data sheets print."""

    name: str
    device: str
    """A name as NVML and torch give it, of those for which prices and peaks are known."""
    half_tflops: float
    """BF16, and FP16 on a V100, in TFLOP/s."""
    fp32_tflops: float
    tf32_tflops: float | None
    fp8_tflops: float | None
    memory: float
    """Bytes that a program sees, less than the data sheet's."""
    bandwidth: float
    """Bytes per second of the memory."""
    link: float
    """Bytes per second to the other GPUs of its domain, one way, as NCCL counts them."""
    domain: int
    """GPUs that such links join; 1 where there are none but PCIe."""
    reached: float
    """The part of the peak that the best matrix products reach."""
    watts: float
    switched: bool
    """Whether its switches add up an all-reduce (NVLS)."""


def _gpu(
    name: str, device: str, gib: float, fp32: float, tf32: float | None, fp8: float | None, link: float, domain: int,
    reached: float, watts: float, switched: bool = False, half: float | None = None,
    terabytes: float | None = None,
) -> Gpu:  # fmt: skip
    tflops, bandwidth = half or dense_bf16_tflops(device), (terabytes and terabytes * 1e12) or memory_bandwidth(device)
    assert tflops is not None, device
    assert bandwidth is not None, device
    return Gpu(
        name=name, device=device, half_tflops=tflops, fp32_tflops=fp32, tf32_tflops=tf32, fp8_tflops=fp8,
        memory=gib * _GIB, bandwidth=bandwidth, link=link * 1e9, domain=domain, reached=reached, watts=watts,
        switched=switched,
    )  # fmt: skip


_GPUS = {
    gpu.name: gpu
    for gpu in (
        # NVLink: NCCL's 20, 20, 20.6 and 40.1 GB/s for each of 6, 12, 18 and 18 links (src/graph/topo.h).
        _gpu("v100-16gb", "Tesla V100-SXM2-16GB", 15.8, 15.7, None, None, 120, 8, 0.85, 300, half=125, terabytes=0.9),
        _gpu("v100-32gb", "Tesla V100-SXM2-32GB", 31.7, 15.7, None, None, 120, 8, 0.85, 300, half=125, terabytes=0.9),
        _gpu("a100-40gb", "NVIDIA A100-SXM4-40GB", 39.4, 19.5, 156, None, 240, 8, 0.87, 400),
        _gpu("a100-80gb", "NVIDIA A100-SXM4-80GB", 79.1, 19.5, 156, None, 240, 8, 0.87, 400),
        _gpu("h100", "NVIDIA H100 80GB HBM3", 79.1, 67, 494, 1979, 370.8, 8, 0.80, 700, True),
        _gpu("h100-pcie", "NVIDIA H100 PCIe", 79.1, 51, 378, 1513, 50, 1, 0.80, 350),
        _gpu("h200", "NVIDIA H200", 139.8, 67, 494, 1979, 370.8, 8, 0.80, 700, True),
        _gpu("b200", "NVIDIA B200", 178.4, 80, 1125, 4500, 721.8, 8, 0.78, 1000, True),
        _gpu("b300", "NVIDIA B300", 268, 80, 1125, 4500, 721.8, 8, 0.78, 1100, True),
        _gpu("gb200", "NVIDIA GB200", 184, 80, 1250, 5000, 721.8, 72, 0.73, 1200, True),
        _gpu("mi300x", "AMD Instinct MI300X", 191.9, 163, 654, 2615, 448, 8, 0.51, 750),
        _gpu("mi325x", "AMD Instinct MI325X", 255.9, 163, 654, 2615, 448, 8, 0.60, 1000),
        _gpu("l40s", "NVIDIA L40S", 44, 91.6, 183, 733, 24, 1, 0.80, 350),
        _gpu("l4", "NVIDIA L4", 22, 30.3, 60, 242, 24, 1, 0.80, 72),
        _gpu("a10g", "NVIDIA A10G", 22, 31.2, 35, None, 24, 1, 0.80, 300, half=70, terabytes=0.6),
    )
}
"""Sources: the vendors' data sheets (dense); the part of the peak that matrix products reach, as measured by
github.com/stas00/ml-engineering (A100, H100, B200, GB200, MI300X, MI325X), and 0.80 to 0.85 taken over for the others;
memory as AWS documents what a program sees (A10G, L4, L40S, H200, B200, B300, GB200) or as torch tells it."""

NAMES = tuple(_GPUS)
"""The names of all GPUs."""


def gpu_of(name: str, place: str) -> Gpu:
    """The GPU of a name: one of `NAMES`, a type of Slurm such as h100, or what NVML tells, such as NVIDIA H100 80GB
    HBM3. Raises ConfigError where it is not known; `place` says where the name stands."""
    words = set(re.findall(r"[a-z0-9]+", name.lower()))
    if name.lower() in _GPUS:
        return _GPUS[name.lower()]
    fitting = [gpu for gpu in _GPUS.values() if set(re.findall(r"[a-z0-9]+", gpu.name)) <= words]
    fitting = [gpu for gpu in fitting if not any(_is_more_exact(other, gpu) for other in fitting)]
    if len(fitting) != 1:
        raise ConfigError(f"{one_line(name)[:60]!r} is not known; valid: {', '.join(NAMES)}", place)
    return fitting[0]


def _is_more_exact(one: Gpu, other: Gpu) -> bool:
    return set(one.name.split("-")) > set(other.name.split("-"))


SLOWER = Range(1.0, 1.5)
"""How much longer than NCCL's model a collective may take, where nothing was measured: its model is for choosing."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes of one kind, and the network between them."""

    gpu: Gpu
    gpus_per_node: int
    network: float
    """Bytes per second of a node's network, one way, as NCCL counts them."""
    slower: Range = SLOWER
    """How much longer than NCCL's model a collective takes."""

    @property
    def domain(self) -> int:
        """GPUs of a node that its links join."""
        return min(self.gpus_per_node, self.gpu.domain)


def cluster(gpu: Gpu, gpus_per_node: int, gbits: float) -> Cluster:
    """Nodes with a network of so many Gbit/s."""
    return Cluster(gpu=gpu, gpus_per_node=gpus_per_node, network=gbits * _GBIT * _NETWORK)
