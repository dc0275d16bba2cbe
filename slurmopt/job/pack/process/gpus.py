"""Tests in a forked process whether forked processes can use the GPUs, and whether these compute.

The parent itself must never start CUDA.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace

from slurmopt.job.facts.rank_facts import RankFacts, visible_gpus
from slurmopt.job.health.gpu_kernel import kind_of
from slurmopt.job.health.run_checks import check_gpu
from slurmopt.job.pack.process.fork import forked, release_signals
from slurmopt.job.rank_args import RankArgs
from slurmopt.run_folder.outcome import Outcome


def breaks_forks() -> bool:
    """Whether a forked process cannot use the GPUs, because a module that was imported here has asked the driver for
    them: on ROCm, and with slices of GPUs (MIG), torch cannot count them without. torch knows it in the child alone."""
    torch = sys.modules.get("torch")
    if torch is None or kind_of(torch) is None:
        return False

    def ask() -> str | None:
        kinds = [torch.cuda, *([torch.xpu] if hasattr(torch, "xpu") else [])]
        return "yes" if any(kind._is_in_bad_fork() for kind in kinds) else None

    return _of_child(ask) is not None


def check_gpus(call: RankArgs, facts: RankFacts) -> Outcome | None:
    """None where all GPUs of the array task compute right; once for all points, whose forks can use them."""
    count = visible_gpus(os.environ)
    if call.health is None or not call.health.gpus or not count:
        return None

    def look() -> str | None:
        for gpu in range(count):
            if (unfit := check_gpu(call, replace(facts, local_rank=gpu))) is not None:
                return json.dumps(unfit.as_dict())
        return None

    outcome = _of_child(look)
    return Outcome(**json.loads(outcome)) if outcome else None


def _of_child(work: Callable[[], str | None]) -> str | None:
    """Runs `work` in a forked process, and returns its result."""
    reader, writer = os.pipe()

    def speak() -> None:
        release_signals()
        if (result := work()) is not None:
            os.write(writer, result.encode())

    pid = forked(speak)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read().decode() or None
