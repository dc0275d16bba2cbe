"""Notes when torch.compile compiles after the first step, which may take minutes: a phase of its own, and counts.

The interface, `torch._dynamo.callback` and `torch._dynamo.utils.counters`, is no public one of torch's: where it is
missing or has changed, nothing is noted.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Protocol

from slurmopt.job.heartbeat.counters import Counters
from slurmopt.job.heartbeat.training_meter import TrainingMeter

COMPILING = "compiling"
RECOMPILED, GRAPHS, BREAKS = "recompiled", "compiled_graphs", "graph_breaks"
"""Compilations after the first step; graphs, and places where torch had to leave a graph, since the process began."""
_watched = False


class Reports(Protocol):
    """What shows the phase of this process, and measures it."""

    meter: TrainingMeter

    @property
    def phase(self) -> str: ...

    def show(self, phase: str) -> None: ...


def watch(reports: Reports) -> None:
    """Notes each compilation of this process from now on. Called after steps: does nothing until torch.compile is
    imported, and nothing again once it watches."""
    global _watched
    callbacks = sys.modules.get("torch._dynamo.callback")
    if _watched or callbacks is None:
        return
    _watched = True
    noted = _Compilations(reports)
    with contextlib.suppress(AttributeError):
        callbacks.callback_handler.register_start_callback(noted.begin)
        callbacks.callback_handler.register_end_callback(noted.end)
    read(reports.meter.counters)


def read(counters: Counters) -> None:
    """Takes over how many graphs torch has compiled, and how often it had to leave one."""
    with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
        counted = sys.modules["torch._dynamo.utils"].counters
        counters.set_total(GRAPHS, float(counted["stats"].get("unique_graphs", 0)))
        counters.set_total(BREAKS, float(sum(counted["graph_break"].values())))


class _Compilations:
    """What to go back to after each compilation that is under way. Callbacks come from the thread that compiles."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._before: list[tuple[str, str | None]] = []

    def begin(self, *_: Any) -> None:
        """A compilation begins. Newer versions of torch tell what is compiled."""
        outer = self._reports.meter.clock.begin(COMPILING)
        self._before.append((self._reports.phase, outer))
        if outer is not None:  # else it is another thread's, and the training goes on
            self._reports.show(COMPILING)

    def end(self, *_: Any) -> None:
        """It has ended, with or without an error."""
        phase, outer = self._before.pop()
        counters = self._reports.meter.counters
        counters.add(RECOMPILED, 1.0)
        read(counters)
        if outer is not None:
            self._reports.meter.clock.resume(outer)
            self._reports.show(phase)
