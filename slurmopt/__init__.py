"""One Hydra config becomes a GPU training that Slurm cannot lose.

What training code needs is imported from here, and `submit` and `find` for notebooks and scripts; each name is loaded
when first used, so the import costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurmopt import old_names

if TYPE_CHECKING:
    from slurmopt.api.find import find
    from slurmopt.api.run import Run
    from slurmopt.api.submission import submit
    from slurmopt.api.sweep import Sweep
    from slurmopt.errors import Requeue, RunFailed
    from slurmopt.job.facts.rank_facts import RankFacts, rank_facts
    from slurmopt.job.worker.current_run import CurrentRun, current_run, on_stop, phase, progress, stop_requested
    from slurmopt.job.worker.measure import flops_per_sample, flops_per_token
    from slurmopt.job.worker.staged_copies import staged
    from slurmopt.job.worker.watched_loader import watch

__version__ = "0.1.0"
__all__ = [
    "CurrentRun", "RankFacts", "Requeue", "Run", "RunFailed", "Sweep", "current_run", "find", "flops_per_sample",
    "flops_per_token", "on_stop", "phase", "progress", "rank_facts", "staged", "stop_requested",
    "submit", "watch",
]  # fmt: skip

_HOMES = {
    "submit": "slurmopt.api.submission",
    "find": "slurmopt.api.find",
    "Run": "slurmopt.api.run",
    "Sweep": "slurmopt.api.sweep",
    "RunFailed": "slurmopt.errors",
    "Requeue": "slurmopt.job.worker.current_run",  # from there: an uncaught one must be known for what it is
    "RankFacts": "slurmopt.job.facts.rank_facts",
    "rank_facts": "slurmopt.job.facts.rank_facts",
    "CurrentRun": "slurmopt.job.worker.current_run",
    "current_run": "slurmopt.job.worker.current_run",
    "on_stop": "slurmopt.job.worker.current_run",
    "phase": "slurmopt.job.worker.current_run",
    "progress": "slurmopt.job.worker.current_run",
    "staged": "slurmopt.job.worker.staged_copies",
    "stop_requested": "slurmopt.job.worker.current_run",
    "flops_per_sample": "slurmopt.job.worker.measure",
    "flops_per_token": "slurmopt.job.worker.measure",
    "watch": "slurmopt.job.worker.watched_loader",
}

_ELSEWHERE = {
    **dict.fromkeys(("Checkpointer", "SlurmoptReader", "SlurmoptWriter", "rng_state"), "slurmopt.checkpoint"),
    **dict.fromkeys(
        (
            "EarlyStopping",
            "Ema",
            "Flops",
            "MicroBatch",
            "NoiseScale",
            "ResumableSampler",
            "Steps",
            "check_replicas",
            "checkpoint_activations",
            "compiled",
            "count_flops",
            "loader",
            "deterministic",
        ),
        "slurmopt.training",
    ),
}
"""Names that are looked for here, and the module that has them."""


old_names.install()


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:  # of an AttributeError `from slurmopt import …` would not show the message
        raise ImportError(f"{name} is in another module: from {_ELSEWHERE[name]} import {name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'slurmopt' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
