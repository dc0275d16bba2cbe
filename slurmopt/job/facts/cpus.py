"""Chooses the CPUs of a rank: those near its GPU, and as many threads as it has CPUs."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from slurmopt.job.facts import gpus
from slurmopt.job.facts.rank_facts import RankFacts

THREADS = "OMP_NUM_THREADS"
_NVML_SECONDS = 10.0
_MASK_BITS = 64
_MASK_WORDS = 64  # 4,096 CPUs


def use_own_cpus(facts: RankFacts, bind: bool) -> None:
    """Binds this process if `bind` is set, and sets its number of threads. Called before torch is imported."""
    threads = thread_exports(facts, os.environ)  # before the rank leaves CPUs to others, which says nothing of Slurm
    if bind:
        keep_near_gpu(facts, os.environ)
    os.environ.update(threads)


def thread_exports(facts: RankFacts, environ: Mapping[str, str]) -> dict[str, str]:
    """OMP_NUM_THREADS for this rank, its own CPUs, unless the user has set it. Otherwise each of eight ranks starts a
    thread for every CPU of the node."""
    if THREADS in environ:
        return {}
    return {THREADS: str(own_cpus(facts, environ))}


def own_cpus(facts: RankFacts, environ: Mapping[str, str]) -> int:
    """The CPUs that this rank may use, divided by the number of ranks that may use the same ones."""
    own = len(os.sched_getaffinity(0))
    return own if _is_bound(own, environ) else max(1, own // facts.local_world_size)


def keep_near_gpu(facts: RankFacts, environ: Mapping[str, str]) -> None:
    """Restricts this process to the CPUs of its GPU's NUMA node, which also holds the memory that it touches first.

    Only if Slurm has not bound it to its own CPUs, and NVML is available.
    """
    allowed = os.sched_getaffinity(0)
    if _is_bound(len(allowed), environ):
        return
    devices = gpus.of_nvidia(environ)
    near = allowed & _cpus_in_time(devices[facts.local_rank % len(devices)]) if devices else set()
    if near and near != allowed:
        os.sched_setaffinity(0, near)


def _is_bound(cpus: int, environ: Mapping[str, str]) -> bool:
    """Whether the launcher has bound this rank to a part of the job's CPUs on this node."""
    of_node = environ.get("SLURM_CPUS_ON_NODE", "")
    return cpus < (int(of_node) if of_node.isdigit() else os.cpu_count() or 1)


def _cpus_in_time(device: str) -> set[int]:
    """As `_cpus_near`, with a timeout: a dead driver never answers, and the rank has no heartbeat yet."""
    answers: list[set[int]] = []
    thread = threading.Thread(target=lambda: answers.append(_cpus_near(device)), name="slurmopt-cpus", daemon=True)
    thread.start()
    thread.join(_NVML_SECONDS)
    return answers[0] if answers else set()


def _cpus_near(device: str) -> set[int]:
    """The CPUs of the GPU's NUMA node from NVML; empty if it does not tell."""
    nvml = gpus.nvml()
    if nvml is None:
        return set()
    try:
        nvml.nvmlInit()
        try:
            mask = nvml.nvmlDeviceGetCpuAffinity(gpus.device_handle(nvml, device), _MASK_WORDS)
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:  # the health check tells of a GPU that does not answer
        return set()
    bits = ((index * _MASK_BITS + bit, word >> bit & 1) for index, word in enumerate(mask) for bit in range(_MASK_BITS))
    return {cpu for cpu, is_near in bits if is_near}
