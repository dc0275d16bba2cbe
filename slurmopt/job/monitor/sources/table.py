"""The table of the sources: which modules measure what a word of `monitor.sources` names. They are loaded when used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from slurmopt.job.monitor.here import Here
from slurmopt.job.monitor.sources.node_ranks import NodeRanks
from slurmopt.job.monitor.sources.source import Source

Opener = Callable[[], "Source | None"]
_GPUS = ("nvidia", "amd", "other_gpus")
"""Each module has `open_source() -> Source | None`; the first that finds GPUs measures them."""


def openers(here: Here, ranks: NodeRanks) -> dict[str, Opener]:
    """What opens the sources of `here.sources`, by their words. None of it may be called in the main thread: a driver
    may not return. Words that only another version knows are left out."""
    table: dict[str, Opener] = {
        "gpu": open_gpus,
        "node": lambda: _module("node").open_source(here, ranks),
        "network": lambda: _module("network").open_source(here),
        "ranks": lambda: _module("ranks").open_source(here, ranks),
    }
    return {word: opener for word, opener in table.items() if word in here.sources}


def open_gpus() -> Source | None:
    """The source of this node's GPUs; None where there are none."""
    for name in _GPUS:
        source: Source | None = _module(name).open_source()
        if source is not None:
            return source
    return None


def _module(name: str) -> Any:
    return import_module(f"slurmopt.job.monitor.sources.{name}")
