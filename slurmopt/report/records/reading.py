"""What is read of an attempt besides the journal: all of it for a report on a run, little for one on many."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from slurmopt.errors import one_line, with_place
from slurmopt.ledger.record import Sample
from slurmopt.report.records.all_series import AttemptSeries, read_all
from slurmopt.report.run_record import RunRecord
from slurmopt.run_folder import heartbeat, time_spent
from slurmopt.run_folder.attempts import Attempt, Event
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series.series import Series, first_facts
from slurmopt.run_folder.time_spent import TimeSpent
from slurmopt.runs import stored_config

_MOST_HEARTBEATS = 32
"""Of one attempt, in a report on many runs."""
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Read:
    """What was read of one attempt."""

    beats: Mapping[int, Heartbeat] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)
    samples: Mapping[int, tuple[Sample, ...]] = field(default_factory=dict)
    told: TimeSpent | None = None
    resources: Mapping[str, Any] = field(default_factory=dict)


class Reading(Protocol):
    """How much is read."""

    def begin(self, run: RunFolder, attempts: Sequence[int], record: RunRecord) -> None:
        """Called first, with the numbers of all attempts."""

    def of_attempt(self, run: RunFolder, attempt: Attempt, event: Event, record: RunRecord) -> Read:
        """What is read of an attempt. `event`: its `attempt` event. Problems are added to the record."""


class InDetail:
    """All heartbeats, and the series if they are asked for; the record keeps both."""

    def __init__(self, with_series: bool) -> None:
        self._with_series = with_series
        self._series: dict[int, AttemptSeries] = {}

    def begin(self, run: RunFolder, attempts: Sequence[int], record: RunRecord) -> None:
        if self._with_series:
            self._series = read_all(run, attempts, record.problems)

    def of_attempt(self, run: RunFolder, attempt: Attempt, event: Event, record: RunRecord) -> Read:
        number = attempt.number
        beats = record.heartbeats[number] = heartbeats(run, number, record.problems)
        series = self._series.get(number, AttemptSeries())
        record.series[number] = series.nodes
        record.gpu = gpu_name(series.nodes) or record.gpu or text(_group(record.config, "resources").get("gpu_type"))
        return Read(
            beats=beats,
            series=series.nodes,
            samples=series.samples,
            told=time_spent.of_event(attempt.end or {}),
            resources=_group(record.config, "resources"),
        )


@dataclass(frozen=True)
class InBrief:
    """What the `end` event says that the ranks spent, else the means over some heartbeats."""

    def begin(self, run: RunFolder, attempts: Sequence[int], record: RunRecord) -> None:
        measured = measured_gpu(run, attempts[-1]) if attempts else None
        resources = stored_config.quick_group(run, "resources")
        record.gpu = measured or text(resources.get("gpu_type"))
        # A point has no config of its own where it ended before it wrote one.
        if not resources and not run.in_sweep and (why := stored_config.whole_or_why(run)[1]) is not None:
            record.problems.append(f"its config.yaml cannot be read, so what it asked for is not known: {why}")

    def of_attempt(self, run: RunFolder, attempt: Attempt, event: Event, record: RunRecord) -> Read:
        told = time_spent.of_event(attempt.end or {}) or self._of_some(run, attempt.number, record)
        is_local = (text(event.get("job")) or "").startswith("local-")
        known = as_int(event.get("gpus")) is not None and not is_local
        return Read(told=told, resources={} if known else stored_config.quick_group(run, "resources"))

    def _of_some(self, run: RunFolder, attempt: int, record: RunRecord) -> TimeSpent | None:
        ranks = _listed(run, attempt, record.problems)
        some = ranks[:: -(-len(ranks) // _MOST_HEARTBEATS)] if ranks else []
        beats = heartbeats(run, attempt, record.problems, some)
        means = time_spent.of_event({time_spent.FIELD: time_spent.of_heartbeats(beats.values())})
        if means is None or len(some) == len(ranks):
            return means
        scale = len(ranks) / means.ranks
        return replace(
            means,
            ranks=len(ranks),
            ended=round(means.ended * scale),
            gpus=None if means.gpus is None else round(means.gpus * scale),
        )


def measured_gpu(run: RunFolder, attempt: int) -> str | None:
    """The name of the GPUs of an attempt, by the series of its first node; None where that cannot be read."""
    nodes: list[str] = []
    with contextlib.suppress(OSError):
        nodes = run.nodes_with_series(attempt)
    return _gpu_of_node(run, attempt, nodes[0]) if nodes else None


def _gpu_of_node(run: RunFolder, attempt: int, node: str) -> str | None:
    facts = first_facts(run.series(attempt, node), run.recent_series(attempt, node))
    return None if facts is None else gpu_name({node: Series(node, attempt, facts=facts)})


def gpu_name(series: Mapping[str, Series]) -> str | None:
    """The name of the GPUs, as NVML tells it to the sampler of the first node that has one."""
    for one in series.values():
        gpus = one.facts.get("gpus")
        for gpu in gpus if isinstance(gpus, list) else ():
            if isinstance(gpu, dict) and (name := text(gpu.get("name"))):
                return name[:_LONGEST_NAME]
    return None


def heartbeats(
    run: RunFolder, attempt: int, problems: list[str], ranks: list[int] | None = None
) -> dict[int, Heartbeat]:
    """The heartbeats of an attempt; `ranks`: of these only."""
    found: dict[int, Heartbeat] = {}
    unread: list[str] = []
    for rank in _listed(run, attempt, problems) if ranks is None else ranks:
        try:
            beat = heartbeat.read(run.heartbeat(attempt, rank))
        except (OSError, RecursionError) as error:
            unread.append(f"{rank} ({one_line(str(error))})")
            continue
        if beat is None:
            unread.append(str(rank))
        else:
            found[rank] = heartbeat.slim(beat)
    if unread:
        shown = ", ".join(unread[:3]) + (f" and {len(unread) - 3} more" if len(unread) > 3 else "")
        problems.append(f"attempt {attempt}: the heartbeats of these ranks cannot be read: {shown}")
    return found


def _listed(run: RunFolder, attempt: int, problems: list[str]) -> list[int]:
    try:
        return run.ranks_with_heartbeats(attempt)
    except OSError as error:
        problems.append(f"attempt {attempt}: its heartbeats cannot be read: {one_line(with_place(error))}")
        return []


def _group(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}
