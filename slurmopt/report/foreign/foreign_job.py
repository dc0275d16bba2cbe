"""The report on a job that slurmopt did not launch: what Slurm, and jobstats where a site has it, tell of it."""

from __future__ import annotations

import time
from dataclasses import replace

from slurmopt.report.foreign import jobstats
from slurmopt.report.foreign.jobstats import NodeStats
from slurmopt.report.run import costs
from slurmopt.report.run.run_report import AttemptRow, NodeRow, RunReport, Usage
from slurmopt.run_folder.series.series import NOT_MEASURED
from slurmopt.slurm.job_usage import JobUsage, job_usage
from slurmopt.slurm.states import is_over, plain_state
from slurmopt.units import human_bytes

_NO_LEDGER = (
    "slurmopt did not launch this job, so nothing tells what it spent its time on: start it with slurmopt launch, or "
    "write `slurmopt monitor -- COMMAND` into its script"
)


def report_on_job(job: str) -> RunReport:
    """The report on a job. RunError where nobody knows of it, SlurmError where Slurm cannot be asked."""
    return of_usage(job_usage(job), time.time())


def of_usage(usage: JobUsage, now: float) -> RunReport:
    """The report of what Slurm tells."""
    over = is_over(usage.state)
    report = RunReport(f"job {usage.job}", plain_state(usage.state), now=now)
    report.detail = f"exit code {usage.exit_code}" if usage.exit_code not in (None, "0:0") else None
    report.experiment, report.owner = usage.name, usage.user
    report.backend, report.jobs, report.created = usage.partition, [usage.job], usage.submitted
    report.unit = "GPU" if usage.gpus else "CPU"
    report.device = usage.gpu_kind if usage.gpus else None
    report.nodes, report.devices = usage.node_count, usage.gpus or usage.cpus
    report.ran = usage.elapsed or None
    if usage.submitted is not None and usage.started is not None:
        report.queued = max(0.0, usage.started - usage.submitted)
        report.wall = report.queued + usage.elapsed
    report.device_seconds = usage.elapsed * (usage.gpus or usage.cpus)
    prices, unknown = costs.known_prices()
    report.cost, notes = costs.cost_of(prices, report.device, report.unit, report.device_seconds, usage.started)
    report.cost = replace(report.cost, energy=usage.energy)
    stats = jobstats.parse(usage.admin_comment)
    report.usage = _of_jobstats(stats, usage) if stats else _of_slurm(usage)
    report.node_rows = [_row(node, usage.elapsed) for node in stats or ()]
    report.attempts = [_attempt(usage, over)] if usage.started is not None else []
    report.notes = [*usage.notes, _NO_LEDGER, *unknown, *notes, *_missing(usage, stats)]
    return report


def _attempt(usage: JobUsage, over: bool) -> AttemptRow:
    queued = None if usage.submitted is None or usage.started is None else max(0.0, usage.started - usage.submitted)
    return AttemptRow(
        number=0, job=usage.job, nodes=usage.nodes, node_count=usage.node_count, devices=usage.gpus or usage.cpus,
        start=usage.started, end=usage.ended if over else None, queued=queued, restart=None, first_step=None,
        last_step=None, steps_lost=None, cause=plain_state(usage.state) if over else None, error=None,
        seconds=usage.elapsed, device_seconds=usage.elapsed * (usage.gpus or usage.cpus),
    )  # fmt: skip


def _missing(usage: JobUsage, stats: list[NodeStats] | None) -> list[str]:
    if not usage.gpus or stats or usage.gpu_activity is not None:
        return []
    return ["what the GPUs did is not known: this site's Slurm does not gather it, and there is no jobstats here"]


def _of_slurm(usage: JobUsage) -> list[Usage]:
    found = []
    if usage.gpus:
        activity = usage.gpu_activity
        shown = NOT_MEASURED if activity is None else f"{activity:.0f} % in kernels, mean of the tasks"
        found.append(Usage("GPU activity", NOT_MEASURED if activity is None else activity / 100, shown))
        if usage.gpu_memory is not None:
            found.append(Usage("GPU memory", NOT_MEASURED, f"{human_bytes(usage.gpu_memory)} of a task, at most"))
    found.append(_cpu(usage.cpu_seconds, usage.cpus, usage.elapsed))
    found.append(_memory(usage.used_memory, usage.memory))
    return found


def _cpu(used: float | None, cpus: float, elapsed: float) -> Usage:
    most = cpus * elapsed
    if used is None or most <= 0:
        return Usage("CPU", NOT_MEASURED, NOT_MEASURED)
    return Usage("CPU", used / most, f"{used / elapsed:.3g} of {cpus:g} cores, mean")


def _memory(used: float | None, most: float | None) -> Usage:
    if used is None:
        return Usage("host memory", NOT_MEASURED, NOT_MEASURED)
    if not most:
        return Usage("host memory", NOT_MEASURED, f"{human_bytes(used)} at most")
    return Usage("host memory", used / most, f"{human_bytes(used)} at most, of {human_bytes(most)}")


def _of_jobstats(stats: list[NodeStats], usage: JobUsage) -> list[Usage]:
    """The same with the numbers of jobstats, which are those of all nodes."""
    found = []
    activity = [value for node in stats for value in node.gpu_activity.values()]
    used = [value for node in stats for value in node.gpu_used.values()]
    memory = [value for node in stats for value in node.gpu_memory.values()]
    if usage.gpus:
        mean = sum(activity) / len(activity) if activity else None
        shown = NOT_MEASURED if mean is None else f"{mean:.0f} % in kernels, mean of {len(activity)} GPUs"
        found.append(Usage("GPU activity", NOT_MEASURED if mean is None else mean / 100, shown))
        if used and memory:
            detail = f"{human_bytes(max(used))} at most, of {human_bytes(max(memory))}"
            found.append(Usage("GPU memory", max(used) / max(memory) if max(memory) else NOT_MEASURED, detail))
    cpu = [node.cpu_seconds for node in stats if node.cpu_seconds is not None]
    found.append(_cpu(sum(cpu) if cpu else None, sum(node.cpus or 0.0 for node in stats), usage.elapsed))
    host = [node.used_memory for node in stats if node.used_memory is not None]
    most = [node.memory for node in stats if node.memory is not None]
    found.append(_memory(sum(host) if host else None, sum(most) if most else None))
    return found


def _row(node: NodeStats, elapsed: float) -> NodeRow:
    activity = node.gpu_activity.values()
    readings: dict[str, float | str] = {}
    if activity:
        readings["util"] = sum(activity) / len(activity) / 100
    if node.gpu_used:
        readings["memory"] = max(node.gpu_used.values())
    if node.cpu_seconds is not None and elapsed > 0:
        readings["cpu"] = node.cpu_seconds / elapsed
    if node.used_memory is not None:
        readings["host_memory"] = node.used_memory
    idle = [index for index, value in node.gpu_activity.items() if value == 0]
    remark = f"GPU {', '.join(idle)} did nothing" if idle else ""
    return NodeRow(node.node, len(node.gpu_activity) or round(node.cpus or 0), (), readings, remark)
