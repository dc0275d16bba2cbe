"""What Slurm knows of a job's use of resources: from sacct, for a running job from sstat, else from scontrol."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slurmopt.errors import RunError, SlurmError, one_line
from slurmopt.slurm import client
from slurmopt.slurm.environment import clean_environment
from slurmopt.slurm.queue_entry import without_placeholder

_TIMEOUT = 30.0
_FIELDS = (
    "JobID", "JobName", "User", "Account", "Partition", "State", "ExitCode", "Submit", "Start", "End", "ElapsedRaw",
    "TimelimitRaw", "NNodes", "NodeList", "AllocTRES", "AllocCPUS", "TotalCPU", "MaxRSS", "MaxRSSNode",
    "TRESUsageInTot", "TRESUsageInAve", "TRESUsageInMax", "ConsumedEnergyRaw", "AdminComment",
)  # fmt: skip
_LIVE_FIELDS = (
    "JobID",
    "MaxRSS",
    "MaxRSSNode",
    "AveCPU",
    "NTasks",
    "TRESUsageInTot",
    "TRESUsageInAve",
    "TRESUsageInMax",
)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE]?)n?c?")
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_GPUS = re.compile(r"gres/gpu(?::([^=]+))?")
_JOB = re.compile(r"\d+(?:_\d+)?")


@dataclass(frozen=True)
class JobUsage:
    """A job. Fields are None where Slurm does not tell; times are seconds since the epoch."""

    job: str
    name: str | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    state: str = "UNKNOWN"
    exit_code: str | None = None
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    elapsed: float = 0.0
    nodes: str | None = None
    node_count: int = 1
    cpus: float = 0.0
    gpus: float = 0.0
    gpu_kind: str | None = None
    memory: float | None = None
    """Bytes allocated on all nodes."""
    cpu_seconds: float | None = None
    used_memory: float | None = None
    """Bytes: of the step that used most, the sum of its tasks' peaks."""
    largest_task: float | None = None
    """Bytes of the task that used most."""
    largest_task_node: str | None = None
    gpu_activity: float | None = None
    """Percent, a mean over tasks; only where the site gathers it."""
    gpu_memory: float | None = None
    """Bytes, of the task that used most; only where the site gathers it."""
    energy: float | None = None
    """Joules; only where the site gathers it."""
    admin_comment: str | None = None
    notes: tuple[str, ...] = field(default=())


def job_usage(job: str) -> JobUsage:
    """What Slurm knows of a job. RunError where it knows nothing of it; SlurmError where it cannot be asked."""
    if not _JOB.fullmatch(job):
        raise RunError(f"{one_line(job)!r} is no job id; valid are forms such as 1234 and 1234_5")
    try:
        rows = _rows("sacct", _FIELDS, f"--jobs={job}", "--duplicates")
    except SlurmError as error:
        return _of_scontrol(job, f"sacct gave no answer ({error})")
    of_job = [row for row in rows if row["JobID"] in (job, *_of_steps(row, job))]
    allocations = [row for row in of_job if row["JobID"] == job]
    if not allocations:
        return _of_scontrol(job, "sacct does not know the job")
    steps = [row for row in of_job if row["JobID"] != job]
    usage = _with_steps(_allocation(allocations[-1]), steps)
    if len(allocations) > 1:
        usage = replace(usage, notes=(*usage.notes, f"it was requeued: this is start {len(allocations)}, the latest"))
    return _with_live(usage) if usage.state.startswith(("RUNNING", "COMPLETING", "SUSPENDED")) else usage


def _of_steps(row: Mapping[str, str], job: str) -> tuple[str, ...]:
    return (row["JobID"],) if row["JobID"].startswith(f"{job}.") else ()


def _rows(command: str, fields: tuple[str, ...], *options: str) -> list[dict[str, str]]:
    mark = f"<{os.urandom(8).hex()}>"
    marked = [f"--delimiter={mark}"]
    if command == "sstat":  # it cannot be told another one; its fields are numbers and names of nodes
        mark, marked = "|", []
    argv = [command, "--noheader", "--parsable", *marked, f"--format={','.join(fields)}", *options]
    text = client.run(argv, _TIMEOUT, clean_environment(os.environ), time_format="%s")
    cells = text.split(mark)
    rows = zip(*[iter(cells)] * len(fields), strict=False)
    return [dict(zip(fields, (cell.strip("\n") for cell in row), strict=True)) for row in rows]


def _allocation(row: Mapping[str, str]) -> JobUsage:
    allocated = tres(row["AllocTRES"])
    gpus, kind = gpus_of(allocated)
    return JobUsage(
        job=row["JobID"],
        name=row["JobName"] or None,
        user=row["User"] or None,
        account=row["Account"] or None,
        partition=row["Partition"] or None,
        state=row["State"] or "UNKNOWN",
        exit_code=row["ExitCode"] or None,
        submitted=_number(row["Submit"]),
        started=_number(row["Start"]),
        ended=_number(row["End"]),
        elapsed=_number(row["ElapsedRaw"]) or 0.0,
        nodes=without_placeholder(row["NodeList"]) or None,
        node_count=int(_number(row["NNodes"]) or 1),
        cpus=_number(row["AllocCPUS"]) or 0.0,
        gpus=gpus,
        gpu_kind=kind,
        memory=size(allocated.get("mem")),
        cpu_seconds=clock(row["TotalCPU"]),
        energy=_number(row["ConsumedEnergyRaw"]) or None,
        admin_comment=row["AdminComment"] or None,
    )


def _with_steps(usage: JobUsage, steps: list[dict[str, str]]) -> JobUsage:
    """Adds what the steps used; the largest step counts, as their peaks need not be at the same time."""
    totals = [(tres(row["TRESUsageInTot"]), row) for row in steps]
    used = [found for total, _ in totals if (found := size(total.get("mem"))) is not None]
    tasks = [(found, row.get("MaxRSSNode")) for _, row in totals if (found := size(row["MaxRSS"])) is not None]
    largest = max(tasks, default=(None, None), key=lambda task: task[0] or 0.0)
    means, peaks = ([tres(row[name]) for row in steps] for name in ("TRESUsageInAve", "TRESUsageInMax"))
    activity = [found for mean in means if (found := _number(mean.get("gres/gpuutil"))) is not None]
    memory = [found for peak in peaks if (found := size(peak.get("gres/gpumem"))) is not None]
    return replace(
        usage,
        used_memory=max(used, default=None),
        largest_task=largest[0],
        largest_task_node=largest[1] or None,
        gpu_activity=max(activity, default=None),
        gpu_memory=max(memory, default=None),
    )


def _with_live(usage: JobUsage) -> JobUsage:
    """Adds what sstat tells of the steps of a running job, of which accounting knows nothing yet."""
    try:
        steps = _rows("sstat", _LIVE_FIELDS, "--allsteps", f"--jobs={usage.job}")
    except SlurmError as error:
        return replace(usage, notes=(*usage.notes, f"it runs, and sstat gave no answer: {error}"))
    cpu = [found * (_number(row["NTasks"]) or 1.0) for row in steps if (found := clock(row["AveCPU"])) is not None]
    live = _with_steps(usage, steps)
    return replace(live, cpu_seconds=sum(cpu) if cpu else usage.cpu_seconds)


def _of_scontrol(job: str, why: str) -> JobUsage:
    """What slurmctld still knows of the job: its allocation, not what it used."""
    try:
        text = client.run(
            ["scontrol", "show", "job", "--oneliner", job], _TIMEOUT, clean_environment(os.environ), time_format="%s"
        )
    except SlurmError as error:
        raise RunError(f"no job {job}: no run here has it; {why}; {error}") from error
    fields = dict(word.split("=", 1) for word in text.splitlines()[0].split() if "=" in word)
    allocated = tres(fields.get("AllocTRES") or fields.get("TRES") or "")
    gpus, kind = gpus_of(allocated)
    started, ended = _number(fields.get("StartTime")), _number(fields.get("EndTime"))
    return JobUsage(
        job=job,
        name=fields.get("JobName"),
        user=(fields.get("UserId") or "").partition("(")[0] or None,
        account=fields.get("Account"),
        partition=fields.get("Partition"),
        state=fields.get("JobState", "UNKNOWN"),
        exit_code=fields.get("ExitCode"),
        submitted=_number(fields.get("SubmitTime")),
        started=started,
        ended=None if fields.get("JobState") in ("RUNNING", "PENDING", "SUSPENDED", "COMPLETING") else ended,
        elapsed=clock(fields.get("RunTime")) or 0.0,
        nodes=without_placeholder(fields.get("NodeList", "")) or None,
        node_count=int(_number((fields.get("NumNodes") or "1").partition("-")[0]) or 1),
        cpus=_number(fields.get("NumCPUs")) or 0.0,
        gpus=gpus,
        gpu_kind=kind,
        memory=size(allocated.get("mem")),
        notes=(f"{one_line(why)}: what only accounting knows is missing",),
    )


def tres(text: str | None) -> dict[str, str]:
    """`cpu=40,mem=10G,gres/gpu:a100=4` by name."""
    return dict(item.split("=", 1) for item in (text or "").split(",") if "=" in item)


def gpus_of(allocated: Mapping[str, str]) -> tuple[float, str | None]:
    """The GPUs of a job and their kind. Some sites count only typed ones, and some all and the typed ones too."""
    plain, typed = 0.0, {}
    for name, count in allocated.items():
        match = _GPUS.fullmatch(name)
        if match and match[1]:
            typed[match[1]] = _number(count) or 0.0
        elif match:
            plain = _number(count) or 0.0
    return plain or sum(typed.values()), ", ".join(sorted(typed)) or None


def size(text: str | None) -> float | None:
    """Bytes of a size as Slurm writes it: `1234K`, `10G`; None for an empty one."""
    match = _SIZE.fullmatch((text or "").strip())
    return float(match[1]) * 1024.0 ** " KMGTPE".index(match[2] or " ") if match else None


def clock(text: str | None) -> float | None:
    """Seconds of a time as Slurm writes it: `1-02:03:04`, `02:03.456`; None for an empty one."""
    match = _CLOCK.fullmatch((text or "").strip())
    if match is None:
        return None
    days, hours = float(match[1] or 0), float(match[2] or 0)
    return ((days * 24 + hours) * 60 + float(match[3])) * 60 + float(match[4])


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").strip())
    except ValueError:
        return None
