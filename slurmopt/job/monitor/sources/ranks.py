"""The source `ranks`: step rates of the ranks of the node and the shares of their time, from their heartbeats, and
their main memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slurmopt.job.monitor.here import Here
from slurmopt.job.monitor.sources.node_ranks import NodeRanks
from slurmopt.job.monitor.sources.rank_memory import RankMemory
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int, number

_RATES = ("steps", "tokens", "samples")
_DDP = ("ddp_backward", "ddp_exposed")
_LOADER = ("loader_fetch", "loader_fetch_cpu", "loader_collate", "loader_copy")
_MOST_ACTIVITIES = 48


def open_source(here: Here, ranks: NodeRanks) -> RanksSource:
    """The source of this node."""
    return RanksSource(ranks, RankMemory(here.roots.proc))


class RanksSource:
    """What the ranks' heartbeats say since the last reading. A rank without a new heartbeat has no values."""

    name = "ranks"

    def __init__(self, ranks: NodeRanks, memory: RankMemory) -> None:
        self._ranks, self._memory = ranks, memory
        self._last: dict[int, Heartbeat] = {}

    def facts(self) -> dict[str, Any]:
        return {}

    def absent(self) -> dict[str, str]:
        return {}

    def events(self) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        """Holds nothing open."""

    def read(self) -> dict[str, float]:
        beats = self._ranks.beats()
        values = self._memory.read(beats)
        for rank, beat in beats.items():
            step = as_int(beat.step)
            if step is not None:
                values[f"rank{rank}.step"] = step
            before = self._last.get(rank) or _at_start(beat)
            if before.time != beat.time:
                self._last[rank] = beat
                values |= {f"rank{rank}.{name}": value for name, value in _since(before, beat).items()}
        return values


def _at_start(beat: Heartbeat) -> Heartbeat:
    """What the rank would have said when it started: it had spent and counted nothing."""
    return replace(beat, time=beat.started, spent={}, counted={}, step=None)


def _since(before: Heartbeat, beat: Heartbeat) -> dict[str, float]:
    """Between two heartbeats of a rank."""
    values = _shares(_rises(before.spent, beat.spent))
    seconds = (number(beat.time) or 0.0) - (number(before.time) or 0.0)
    counted = _rises(before.counted, beat.counted)
    steps, earlier = as_int(beat.step), as_int(before.step)
    if "steps" not in counted and steps is not None and earlier is not None and steps >= earlier:
        counted["steps"] = steps - earlier
    if seconds > 0:
        values |= {name: counted[name] / seconds for name in _RATES if name in counted}
    if (sampled := counted.get("ddp_sampled", 0.0)) > 0:
        values |= {name: counted[name] / sampled for name in _DDP if name in counted}
    if (batches := counted.get("loader_batches", 0.0)) > 0:
        values |= {name: counted[name] / batches for name in _LOADER if name in counted}
    return values


def _shares(spent: Mapping[str, float]) -> dict[str, float]:
    """The share of the time that went into each activity."""
    total = sum(spent.values())
    return {f"{activity}.share": seconds / total for activity, seconds in spent.items()} if total > 0 else {}


def _rises(before: object, now: object) -> dict[str, float]:
    """How much each number has grown. One that has fallen belongs to another process of that name. Anybody may have
    edited the file."""
    if not isinstance(now, dict):
        return {}
    earlier = before if isinstance(before, dict) else {}
    rises: dict[str, float] = {}
    for name, value in list(now.items())[:_MOST_ACTIVITIES]:
        reached, start = number(value), number(earlier.get(name)) or 0.0
        if reached is not None and reached >= start:
            rises[str(name)] = reached - start
    return rises
