"""Makes the report on a run of what was read of it: ledger, measurements, attempts, findings, notes."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from typing import Any

from slurmopt.errors import one_line
from slurmopt.estimates import past_runs
from slurmopt.gpu_peaks import dense_bf16_tflops
from slurmopt.ledger.buckets import COMPUTE
from slurmopt.ledger.ledger import Account, AttemptLedger, Ledger
from slurmopt.ledger.record import AttemptRecord
from slurmopt.planning.memory.peak import RUNTIME
from slurmopt.report.gather import gather
from slurmopt.report.run import costs, curves, diagnoses, measures
from slurmopt.report.run.fine_series import refine
from slurmopt.report.run.gaps import listed, measured_in_part, without_series
from slurmopt.report.run.measures import NodeSeries
from slurmopt.report.run.run_report import Accounting, AttemptRow, NodeRow, Planned, RunReport, Share
from slurmopt.report.run.speeds import rates
from slurmopt.report.run_record import AccountingCheck, RunRecord
from slurmopt.run_folder.json_values import text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.history import timeline
from slurmopt.runs.history.timeline import Entry
from slurmopt.runs.journal import FOREIGN
from slurmopt.runs.status.progress import from_heartbeat
from slurmopt.runs.status.state import ENDED

_MILLISECONDS = 1000.0
_MOST_PROBLEMS = 20
_LONGEST_REASON = 200
_OF_A_PACK = (
    "it shared an array task: its hours and cost are those of the whole array task while it ran, which the report on "
    "the sweep divides among the points; what was measured is that of the array task (slurmopt metrics)"
)


def report_on(run: RunFolder, accounting: bool = False) -> RunReport:
    """The report on a run, or on a point of a sweep. `accounting`: asks sacct too, if the run's jobs are Slurm's."""
    with _without_collection():
        record = gather(run, accounting=accounting)
        refine(record)
        return built(record)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Searches for no reference cycles meanwhile: in 100,000 lists of numbers there are none, and it takes a tenth of
    the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def built(record: RunRecord) -> RunReport:
    """The report of what was read."""
    ledger, status = record.ledger, record.status
    report = RunReport(record.label, record.state, now=record.now, unit=ledger.unit)
    report.detail, report.owner = status.detail, status.owner
    report.experiment = experiment(record)
    report.folder = str(record.folder.told(record.folder.path))
    report.backend, report.jobs, report.created = (
        status.journal.backend,
        list(status.journal.jobs),
        status.journal.created,
    )
    _add_ledger(report, ledger)
    report.provisional = ledger.provisional and record.state not in ENDED
    _add_check(report, record.accounting)
    _add_progress(report, record)
    _add_plan(report, record)
    _add_attempts(report, record)
    _add_measures(report, record)
    _add_findings(report, record)
    report.notes += notes(record)
    return report


def _add_findings(report: RunReport, record: RunRecord) -> None:
    found = diagnoses.diagnosis(record)
    report.findings, report.abstentions = list(found.findings), list(found.abstentions)
    report.notes += found.notes
    report.helped = diagnoses.helped(record, found)
    if report.step_rate is None:
        report.step_rate = found.steps_per_second


def experiment(record: RunRecord) -> str | None:
    """The name under which runs of the same kind are known: `launch.name` of the config, else the folder's."""
    launch = record.config.get("launch")
    named = text(launch.get("name")) if isinstance(launch, dict) else None
    return named if named and "$" not in named else record.name


def shares(account: Account) -> list[Share]:
    """The buckets of an account that are not empty, in their order."""
    return [Share(name, amount / _MILLISECONDS, account.share(name)) for name, amount in account.in_order()]


def _add_ledger(report: RunReport, ledger: Ledger) -> None:
    report.device_seconds = ledger.allocated / _MILLISECONDS
    report.shares = shares(ledger)


def _add_check(report: RunReport, found: AccountingCheck | None) -> None:
    if found is not None:
        report.accounting = Accounting(found.charged, found.counted, found.difference, found.unit)
        report.notes += found.notes


def _add_progress(report: RunReport, record: RunRecord) -> None:
    beats = next(
        (record.heartbeats[number] for number in sorted(record.heartbeats, reverse=True) if record.heartbeats[number]),
        {},
    )
    progress = from_heartbeat(beats[min(beats)]) if beats else record.status.progress
    report.step, report.total_steps, report.step_rate = progress.step, progress.total_steps, progress.steps_per_second
    report.rates = rates(list(beats.values()))


def _add_plan(report: RunReport, record: RunRecord) -> None:
    found = past_runs.scored_as(record.folder, record.config)
    if found is None or found.shape.memory is None or found.shape.step is None:
        return
    peak, step = found.shape.memory.peak, found.shape.step.total
    reserved = (peak.low - RUNTIME.low, peak.high - RUNTIME.high)
    report.planned = Planned(found.peak, reserved, found.step, (step.low, step.high))


def _add_attempts(report: RunReport, record: RunRecord) -> None:
    attempts = [record.facts[number].attempt for number in sorted(record.facts)]
    alive = record.status.alive or record.state == "unknown"
    entries = timeline.entries(record.folder, attempts, record.now, alive)
    records = {one.number: one for one in record.attempts}
    ledgers = {one.number: one for one in record.ledger.attempts}
    report.attempts = [
        _attempt(entry, records.get(entry.attempt.number), ledgers.get(entry.attempt.number)) for entry in entries
    ]
    known = [entry.seconds for entry in entries if entry.seconds is not None]
    queues = [entry.queue for entry in entries if entry.queue is not None]
    report.ran, report.queued = (sum(known) if known else None), (sum(queues) if queues else None)
    ended = record.now if record.status.alive or not entries else entries[-1].ended
    if report.created is not None and ended is not None:
        report.wall = max(0.0, report.ran or 0.0, ended - report.created)  # a point is noted after its task has started
    if entries:
        report.nodes = report.attempts[-1].node_count
        report.devices = report.attempts[-1].devices
    if report.step is None:
        report.step = max((row.last_step for row in report.attempts if row.last_step is not None), default=None)


def _attempt(entry: Entry, found: AttemptRecord | None, accounts: AttemptLedger | None) -> AttemptRow:
    attempt = entry.attempt
    error = text((attempt.end or {}).get("error"))
    return AttemptRow(
        number=attempt.number,
        job=attempt.job,
        nodes=attempt.nodes,
        node_count=len(found.gpus) if found is not None else entry.nodes,
        devices=sum(found.gpus.values()) if found is not None else 0.0,
        start=entry.started,
        end=entry.ended,
        queued=entry.queue,
        restart=entry.restart,
        first_step=entry.base,
        last_step=entry.last,
        steps_lost=entry.lost,
        cause=None if entry.cause is None else one_line(entry.cause)[:_LONGEST_REASON],
        error=None if error is None or entry.cause == "finished" else one_line(error)[:300],
        seconds=entry.seconds,
        device_seconds=None if accounts is None else accounts.allocated / _MILLISECONDS,
    )


def node_series(record: RunRecord) -> list[NodeSeries]:
    """The series of each node over all attempts."""
    by_node: dict[str, list[Any]] = {}
    for attempt in sorted(record.series):
        for node, series in record.series[attempt].items():
            by_node.setdefault(node, []).append(series)
    return [NodeSeries(node, by_node[node]) for node in by_node]


def _add_measures(report: RunReport, record: RunRecord) -> None:
    nodes = node_series(record)
    report.device = device_name(nodes) if report.unit == "GPU" else None
    _add_utilisation(report)
    _add_cost(report, record, nodes)
    report.panels = curves.panels(nodes)
    report.usage = measures.usage(nodes)
    rows = [NodeRow(node.node, _devices(record, node), _ranks(record, node.node), node.readings) for node in nodes]
    report.node_rows = measures.with_remarks(rows, _slowest(record.ledger))


def _add_cost(report: RunReport, record: RunRecord, nodes: Sequence[NodeSeries]) -> None:
    prices, notes = costs.known_prices()
    resources = record.config.get("resources")
    kind = text(resources.get("gpu_type")) if isinstance(resources, dict) else None
    when = record.attempts[-1].start if record.attempts else report.created
    cost, more = costs.cost_of(prices, report.device or kind, report.unit, report.device_seconds, when)
    series = [one for node in nodes for one in node.series]
    report.cost, of_energy = costs.with_energy(cost, prices, series, report.device_seconds)
    report.notes += [*notes, *more, *of_energy]


def _add_utilisation(report: RunReport) -> None:
    """MFU and HFU: FLOP per second of the peak of all GPUs, where the training counted FLOP and the peak is known."""
    if "flops" not in report.rates or report.device is None or not report.devices:
        return
    peak = dense_bf16_tflops(report.device)
    if peak is None:
        report.notes.append(f"MFU is unknown: the arithmetic peak of {report.device} is not known")
        return
    for name, counted in (("mfu", "flops"), ("hfu", "hardware_flops")):
        if counted in report.rates:
            report.rates[name] = report.rates[counted] / (peak * 1e12 * report.devices)


def device_name(nodes: Sequence[NodeSeries]) -> str | None:
    """The name of the GPUs; of several kinds all names."""
    names = {text(gpu.get("name")) for node in nodes for one in node.series for gpu in measures.gpus_of(one)}
    return ", ".join(sorted(filter(None, names))[:3]) or None


def _devices(record: RunRecord, node: NodeSeries) -> int:
    allocated = [attempt.gpus[node.node] for attempt in record.attempts if node.node in attempt.gpus]
    return round(allocated[-1]) if allocated else node.gpus


def _ranks(record: RunRecord, node: str) -> tuple[int, ...]:
    latest = record.attempts[-1].ranks if record.attempts else ()
    return tuple(sorted({rank.rank for rank in latest if rank.node == node}))


def _slowest(ledger: Ledger) -> dict[str, str]:
    """Node → that it has the rank that the others waited for, in how many attempts."""
    found: dict[str, list[int]] = {}
    for attempt in ledger.attempts:
        if attempt.slowest_node is not None and attempt.slowest_rank is not None:
            found.setdefault(attempt.slowest_node, []).append(attempt.slowest_rank)
    return {
        node: f"the others wait for rank {ranks[-1]}" + (f", in {len(ranks)} attempts" if len(ranks) > 1 else "")
        for node, ranks in found.items()
    }


def notes(record: RunRecord) -> list[str]:
    """What is missing, estimated or provisional."""
    found = [*record.problems, *record.ledger.notes]
    if record.ledger.provisional and record.status.journal.backend != FOREIGN:  # whose steps nobody does again
        found.append("steps after the last checkpoint count as lost once another attempt has done them again")
    if any(facts.place for facts in record.facts.values()):
        found.append(_OF_A_PACK)
    elif not any(record.series.values()) and record.attempts:
        found.append(
            "there are no series: the sampler was off (monitor.sampler), could not write, or is of an older version"
        )
    found += [*without_series(record), *measured_in_part(record), *_without_gpus(record), *_without_steps(record)]
    if len(found) > _MOST_PROBLEMS:
        found = [*found[:_MOST_PROBLEMS], f"and {len(found) - _MOST_PROBLEMS} more"]
    return found


def _without_gpus(record: RunRecord) -> list[str]:
    """Why GPUs were not measured, as their sampler says, and on which nodes."""
    nodes: dict[str, list[str]] = {}
    latest = {node: series for by_node in record.series.values() for node, series in by_node.items()}
    for node, series in sorted(latest.items()):
        if why := text(series.facts.get("gpu_error")):
            nodes.setdefault(why[:_LONGEST_REASON], []).append(node)
    return [f"{listed(names)}: {why}" for why, names in nodes.items()]


def _without_steps(record: RunRecord) -> list[str]:
    if not record.ledger[COMPUTE] or any(rank.step is not None for one in record.attempts for rank in one.ranks):
        return []
    return ["no rank reported steps (slurmopt.progress): all of its time after the start counts as compute"]
