"""What runs asked for and what they used of it, out of their folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurmopt.config.resources import Resources
from slurmopt.errors import SlurmoptError, one_line, with_place
from slurmopt.planning.right_size import GPU_MEMORY, MEMORY, QUANTILE, TIME, Gpus, Used
from slurmopt.report.records import reading, run_attempts
from slurmopt.report.run.build import node_series
from slurmopt.report.run.measures import NodeSeries
from slurmopt.report.run_record import RunRecord
from slurmopt.restart.causes import GPU_OUT_OF_MEMORY, OUT_OF_MEMORY, TIME_LIMIT
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import stored_config
from slurmopt.runs.history import timeline
from slurmopt.runs.status import query
from slurmopt.runs.status.query import Status
from slurmopt.sweeps.status.parallel import parallel_map

_IDLE = 1.0
"""Percent. A GPU that never had more was never used: drivers round a stray sample up to it. Assumed."""
_FEW = 8
"""Runs; as many are read sooner than processes are forked."""
_SHORT_OF = {TIME_LIMIT: TIME, OUT_OF_MEMORY: MEMORY, GPU_OUT_OF_MEMORY: GPU_MEMORY}


@dataclass(frozen=True)
class UsedBy:
    """One run."""

    label: str
    resources: Resources | None
    """None where its config cannot be used; then `problem` says why."""
    used: Used | None
    """None where it has not run."""
    problem: str | None = None


def used_by(runs: Sequence[RunFolder]) -> list[UsedBy]:
    """What each of the runs used, in their order. Slurm is asked once for all of them."""
    statuses, _ = query.gather(list(runs))
    return list(parallel_map(_read, statuses) if len(statuses) > _FEW else map(_read, statuses))


def _read(status: Status) -> UsedBy:
    record = RunRecord(status)
    try:
        run_attempts.fill(record, reading.InDetail(True))
        used = _used(record)
    except (OSError, RecursionError) as error:  # one of many
        why = with_place(error) if isinstance(error, OSError) else str(error)
        return UsedBy(record.label, None, None, one_line(why))
    config, problem = stored_config.whole_or_why(status.folder)
    if problem is not None:
        return UsedBy(record.label, None, used, f"its config.yaml cannot be read: {problem}")
    try:
        return UsedBy(record.label, Resources(**(config.get("resources") or {})), used)
    except (SlurmoptError, TypeError, ValueError, AttributeError) as error:  # an edited config
        return UsedBy(record.label, None, used, f"its config cannot be used: {one_line(str(error))}")


def _used(record: RunRecord) -> Used | None:
    attempts = [record.facts[number].attempt for number in sorted(record.facts)]
    entries = timeline.entries(record.folder, attempts, record.now, record.status.alive)
    seconds = [entry.seconds for entry in entries if entry.seconds is not None]
    if sum(seconds) <= 0:
        return None
    is_packed = any(facts.place for facts in record.facts.values())
    nodes = [] if is_packed else node_series(record)  # a pack is measured as a whole
    return Used(
        seconds=sum(seconds),
        finished=record.state == "finished",
        memory=_largest(nodes, "host_memory"),
        cores=_largest(nodes, "cpu"),
        gpus=_gpus(nodes),
        longest=max(seconds),
        short_of=frozenset(_SHORT_OF[cause] for entry in entries if (cause := entry.cause or "") in _SHORT_OF),
    )


def _largest(nodes: Sequence[NodeSeries], key: str) -> float | None:
    found = [value for node in nodes if isinstance(value := node.readings.get(key), float | int)]
    return max(found, default=None)


def _gpus(nodes: Sequence[NodeSeries]) -> Gpus | None:
    """None unless each node tells of each of its GPUs."""
    values = [list(_utilisations(node)) for node in nodes]
    if not values or any(not found or len(found) < node.gpus for found, node in zip(values, nodes, strict=True)):
        return None
    busy = max(sum(max(value for value, _ in gpu) > _IDLE for gpu in found) for found in values)
    together = [pair for found in values for gpu in found for pair in gpu]
    total = sum(seconds for _, seconds in together)
    if total <= 0:
        return None
    mean, high = sum(value * seconds for value, seconds in together) / total, _quantile(together, QUANTILE)
    return Gpus(each=max(map(len, values)), busy=busy, mean=mean / 100, high=high / 100)


def _utilisations(node: NodeSeries) -> Iterator[list[tuple[float, float]]]:
    """Of each GPU that was measured: percent and seconds of each interval, over all attempts."""
    found: dict[str, list[tuple[float, float]]] = {}
    for series, column in node.columns("gpu.util"):
        pairs = zip(series.values[column], series.seconds, strict=True)
        found.setdefault(column, []).extend((value, seconds) for value, seconds in pairs if value is not None)
    yield from (gpu for gpu in found.values() if gpu)


def _quantile(pairs: Sequence[tuple[float, float]], share: float) -> float:
    """The least value that is not exceeded for this share of the time. `pairs`: values and seconds."""
    left = share * sum(seconds for _, seconds in pairs)
    for value, seconds in sorted(pairs):
        left -= seconds
        if left <= 1e-9:
            return value
    return max(value for value, _ in pairs)
