"""Reads the times that DistributedDataParallel measures of itself: forward, backward, communication and their overlap.

It measures its first ten iterations, then each hundredth; this module changes nothing of that, and reads the last
sample, which takes 13 µs. The times of a backward end before the wait for the other ranks, so they show which rank is
slow. The interface is a prototype of torch's: where it is missing or has changed, `ddp_sampled` stays zero.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

from slurmopt.job.heartbeat.counters import Counters

SAMPLED = "ddp_sampled"
_FIRST = 3
"""Before this iteration DDP still arranges its buckets."""
_NANOSECONDS = 1e-9
_newest: weakref.ref[Any] | None = None
_hook: Any = None


def find_models() -> None:
    """Notes each DDP model that this process makes from now on. Does nothing as long as torch is not imported.

    torch calls the hook when a module gets a submodule, as models are built; it costs no forward and no backward.
    """
    global _hook
    distributed = sys.modules.get("torch.nn.parallel.distributed")
    if _hook is not None or distributed is None:
        return
    model_class = distributed.DistributedDataParallel

    def note(module: Any, name: str, submodule: Any) -> None:
        if isinstance(module, model_class):
            note_model(module)

    modules = sys.modules["torch.nn.modules.module"]
    _hook = modules.register_module_module_registration_hook(note)


def note_model(model: Any) -> None:
    """Notes a model. The newest one is measured."""
    global _newest
    _newest = weakref.ref(model)


class DdpTimings:
    """The samples of the newest model, as sums. Called by the training's thread alone."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None

    def read(self, counters: Counters) -> None:
        """Adds the last sample, if it is a new one."""
        model = None if _newest is None else _newest()
        if model is None:
            return
        try:
            sample = _sample(model._get_ddp_logging_data())
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError, AssertionError):
            sample = None  # another version of torch, or a model whose construction failed
        counters.add(SAMPLED, 0.0)
        if sample is None or sample[0] == self._last:
            return
        self._last, seconds = sample
        counters.add(SAMPLED, 1.0)
        for name, value in seconds.items():
            counters.add(name, value)


def _sample(data: Any) -> tuple[tuple[int, int], dict[str, float]] | None:
    """What tells the last sample from others, and its times in seconds. None if there is no sample yet."""
    iteration, backward = int(data["iteration"]), int(data["backward_compute_time"])
    forward, communication = int(data["forward_compute_time"]), int(data["backward_comm_time"])
    overlap = int(data["backward_compute_comm_overlap_time"])
    if iteration < _FIRST or backward <= 0 or communication <= 0:
        return None
    nanoseconds = {
        "ddp_forward": forward,
        "ddp_backward": backward,
        "ddp_communication": communication,
        "ddp_exposed": max(0, communication - overlap),
    }
    # Without the exchange of gradients (`no_sync`) the times are still those of the sample before.
    return (backward, communication), {name: value * _NANOSECONDS for name, value in nanoseconds.items()}
