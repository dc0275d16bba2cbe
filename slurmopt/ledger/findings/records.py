"""Makes the evidence from the records of an attempt: heartbeats, series, config. Pure arithmetic, and robust against
values that somebody else may have written: a field of a wrong type counts as missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurmopt.ledger.findings import plausible
from slurmopt.ledger.findings.evidence import (
    AttemptEvidence,
    ConfigFacts,
    HangFacts,
    RankEvidence,
)
from slurmopt.ledger.findings.node_series import NodeSeries
from slurmopt.ledger.record import AttemptRecord, RankRecord
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.series.series import Series


def evidence_of(
    record: AttemptRecord,
    beats: Mapping[int, Heartbeat],
    series: Sequence[Series],
    *,
    config: ConfigFacts | None = None,
    buckets: Mapping[str, float] | None = None,
    hang: Mapping[str, Any] | None = None,
    saves: int | None = None,
) -> AttemptEvidence:
    """The evidence of one attempt.

    `beats`: the last heartbeats by rank. `series`: those of its nodes; nodes may be missing. `buckets`: its ledger,
    bucket → GPU-seconds. `hang`: the watchdog's file or event. `saves`: how many saves it made.
    """
    since, until = _window(record)
    nodes = {item.node: NodeSeries(item, since, until) for item in series}
    ranks = tuple(
        _rank(rank, beats.get(rank.rank), nodes.get(rank.node), record.end - record.start) for rank in record.ranks
    )
    found = (node.rates() for node in nodes.values())
    rates_of, rates = next(((unit, rates) for unit, rates in found if rates), ("steps", ()))
    devices = tuple(device for name in nodes for device in nodes[name].devices(_known_ranks(ranks, name)))
    return AttemptEvidence(
        number=record.number,
        seconds=max(0.0, record.end - record.start),
        unit=record.unit,
        gpus=dict(record.gpus),
        had=None if record.allocated is None else record.allocated / 1000,
        ranks=ranks,
        devices=devices,
        nodes=tuple(node.evidence() for node in nodes.values()),
        window=max(0.0, until - since),
        rates=rates,
        rates_of=rates_of,
        events=tuple({**event, "node": item.node} for item in series for event in item.events),
        hang=None if hang is None else _hang(hang, record),
        buckets=buckets,
        config=config or ConfigFacts(),
        cause=record.cause,
        alive=record.alive,
        end=record.end,
        step=max((rank.step for rank in record.ranks if rank.step is not None), default=None),
        total_steps=max((total for beat in beats.values() if (total := as_int(beat.total_steps))), default=None),
        saves=saves,
    )


def _window(record: AttemptRecord) -> tuple[float, float]:
    """From the first step of the last rank to the last step of any; the whole attempt where no steps were reported."""
    firsts = [rank.first_step_time for rank in record.ranks if rank.first_step_time is not None]
    lasts = [rank.step_time for rank in record.ranks if rank.step_time is not None]
    since, until = max(firsts, default=record.start), max(lasts, default=record.end)
    return since, max(since, until)


def _rank(record: RankRecord, beat: Heartbeat | None, node: NodeSeries | None, length: float) -> RankEvidence:
    steps, rate = _steps(record)
    compute, exposed = _ddp(record, node)
    return RankEvidence(
        rank=record.rank,
        node=record.node,
        gpus=record.gpus,
        devices=() if node is None or beat is None else node.indexes(beat.gpus),
        spent=plausible.times(record.spent, length),
        shares={} if node is None else node.shares_of(record.rank),
        counted=record.counted,
        steps=steps,
        steps_per_second=rate,
        compute=plausible.timing(compute, length),
        exposed=plausible.timing(exposed, length),
        memory_points=() if node is None else node.points(f"rank{record.rank}.memory"),
        workers_points=() if node is None else node.points(f"rank{record.rank}.workers_memory"),
    )


def _ddp(record: RankRecord, node: NodeSeries | None) -> tuple[float | None, float | None]:
    """The seconds of a step that a rank computes, and those in which it only waits for others: the medians of the
    series, else the means of all samples, in which the slow first steps weigh more."""
    name = f"rank{record.rank}"
    backward = None if node is None else node.middle(f"{name}.ddp_backward")
    exposed = None if node is None else node.middle(f"{name}.ddp_exposed")
    if node is None or backward is None or exposed is None:
        counted = record.counted
        return _of_sampled(counted, "ddp_forward", "ddp_backward"), _of_sampled(counted, "ddp_exposed")
    return backward + (node.middle(f"{name}.ddp_forward") or 0.0), exposed


def _known_ranks(ranks: Sequence[RankEvidence], node: str) -> list[RankEvidence] | None:
    """The ranks of a node; None if not all of them, or none of the attempt's, tell which GPUs they use."""
    here = [rank for rank in ranks if rank.node == node]
    return here if all(rank.devices for rank in here or ranks) and ranks else None


def _steps(record: RankRecord) -> tuple[float, float | None]:
    """The steps after the first one, and how many a second."""
    if record.first_step is None or record.step is None:
        return 0.0, None
    steps = float(max(0, record.step - record.first_step))
    since, until = record.first_step_time, record.step_time
    if not steps or since is None or until is None or until <= since:
        return steps, None
    return steps, steps / (until - since)


def _of_sampled(counted: Mapping[str, float], *names: str) -> float | None:
    sampled = counted.get("ddp_sampled", 0.0)
    known = [counted[name] for name in names if name in counted]
    return sum(known) / sampled if sampled > 0 and known else None


def _hang(value: Mapping[str, Any], record: AttemptRecord) -> HangFacts:
    """The hang. The journal's event does not tell the phase: then what the rank did when it last reported."""
    silent, number_of = value.get("silent"), as_int(value.get("rank"))
    activity = next((rank.activity for rank in record.ranks if rank.rank == number_of), None)
    return HangFacts(
        rank=number_of,
        node=text(value.get("node")),
        step=as_int(value.get("step")),
        seconds=max(0.0, number(value.get("seconds")) or 0.0),
        phase=text(value.get("phase")) or activity,
        silent=tuple(
            rank for item in (silent if isinstance(silent, list) else ()) if (rank := as_int(item)) is not None
        ),
        alike=max(1, as_int(value.get("alike")) or 1),
    )
