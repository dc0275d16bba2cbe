"""What the `#SBATCH` lines ask for, in the keys of an experiment."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from slurmopt.config.check import did_you_mean
from slurmopt.config.resources import OWN_OPTIONS, Resources
from slurmopt.config.restart import SIGNALS
from slurmopt.errors import InputError
from slurmopt.importing.remarks import Remarks
from slurmopt.importing.sbatch import geometry
from slurmopt.importing.sbatch.array_range import array_tasks
from slurmopt.importing.sbatch.directives import Directive
from slurmopt.importing.sbatch.sbatch_options import LONG, NONE
from slurmopt.units import mebibytes, seconds

_SAME_NAME = (
    "partition", "account", "qos", "constraint", "nodelist", "exclude", "reservation", "licenses", "comment",
    "mail-user", "mail-type",
)  # fmt: skip
_OWN = {
    "output": "the logs are in the run folder: slurmopt logs",
    "error": "the logs are in the run folder: slurmopt logs --errors",
    "open-mode": "logs of all attempts are kept",
    "requeue": "slurmopt requeues the job, depending on the cause of its end",
    "job-name": "the name of the experiment",
    "parsable": "slurmopt launch launch.json=true prints the job",
    "quiet": "",
    "verbose": "",
    "wait": "launch.wait=true waits",
}
_LEFT_OUT = {
    "no-requeue": "slurmopt restarts the run; restart.budgets.KEY=0 for each cause that is to end it",
    "test-only": "launch.dry_run=true shows the script",
    "hold": "scontrol hold JOB does the same after the launch",
    "wrap": "for sbatch without a script",
    "batch": "slurmopt has no key for it",
    "export-file": "list the variables in environment.variables",
    "bb": "burst buffers are not supported",
    "bbf": "burst buffers are not supported",
}


@dataclass
class Requested:
    """What the directives ask for."""

    shape: geometry.Geometry
    resources: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    restart: dict[str, Any] = field(default_factory=dict)
    workdir: str | None = None
    name: str | None = None
    tasks: list[int] | None = None
    """The array tasks; None without `--array`."""
    at_once: int | None = None


def requested(directives: list[Directive], remarks: Remarks) -> Requested:
    """Reads all directives. Of an option that is given twice, the last one counts. InputError for an invalid value."""
    given = {item.name: item for item in directives}
    for item in directives:
        if given[item.name] is not item:
            remarks.left_out(item.line, item.text, f"line {given[item.name].line} sets it again")
    shape = geometry.geometry(given, remarks)
    wanted = Requested(shape, extra=dict(shape.extra))
    for name, item in given.items():
        if name not in geometry.NAMES:
            _READERS.get(name, _other)(wanted, item, remarks)
    _one_memory(wanted, remarks)
    return wanted


def _one_memory(wanted: Requested, remarks: Remarks) -> None:
    """Slurm takes the last of these options; the config takes one."""
    held = [key for key in ("memory", "memory_per_cpu", "memory_per_gpu") if key in wanted.resources]
    for key in held[:-1]:
        del wanted.resources[key]
        remarks.left_out(0, f"resources.{key}", f"resources.{held[-1]} excludes it")


def _same(wanted: Requested, item: Directive, remarks: Remarks) -> None:
    key = item.name.replace("-", "_")
    wanted.resources[key] = item.value or ""
    remarks.moved(item.line, item.text, f"resources.{key}: {item.value}")


def _time(wanted: Requested, item: Directive, remarks: Remarks) -> None:
    text = (item.value or "").strip()
    if text.lower() in ("unlimited", "infinite", "-1", "0"):
        remarks.left_out(item.line, item.text, "no time limit; the partition's holds")
        return
    wanted.resources["time"] = _readable(item, text, seconds)
    remarks.moved(item.line, item.text, f"resources.time: {text}")


def _memory(key: str) -> Callable[[Requested, Directive, Remarks], None]:
    def read(wanted: Requested, item: Directive, remarks: Remarks) -> None:
        wanted.resources[key] = _readable(item, (item.value or "").strip(), mebibytes)
        remarks.moved(item.line, item.text, f"resources.{key}: {item.value}")

    return read


def _readable(item: Directive, text: str, parse: Callable[[str], object]) -> str:
    try:
        parse(text)
    except ValueError as error:
        raise InputError(f"line {item.line}: {item.text!r}: {error}") from error
    return text


def _exclusive(wanted: Requested, item: Directive, remarks: Remarks) -> None:
    wanted.resources["exclusive"] = True
    note = f" ({item.value} is not expressed)" if item.value else ""
    remarks.moved(item.line, item.text, f"resources.exclusive: true{note}")


def _chdir(wanted: Requested, item: Directive, remarks: Remarks) -> None:
    wanted.workdir = item.value
    remarks.moved(item.line, item.text, f"environment.workdir: {item.value}")


def _array(wanted: Requested, item: Directive, remarks: Remarks) -> None:
    try:
        wanted.tasks, wanted.at_once = array_tasks(item.value or "")
    except ValueError as error:
        raise InputError(f"line {item.line}: {item.text!r}: {error}") from error
    limit = f", sweep.at_once: {wanted.at_once}" if wanted.at_once else ""
    remarks.moved(item.line, item.text, f"a sweep of {len(wanted.tasks)} points{limit}")


def _export(wanted: Requested, item: Directive, remarks: Remarks) -> None:
    for word in (item.value or "").split(","):
        name, sign, value = word.partition("=")
        if sign:
            wanted.variables[name] = value
            remarks.moved(item.line, item.text, f"environment.variables.{name}")
        elif word.upper() == "ALL":
            remarks.own(item.line, item.text)
        else:
            remarks.left_out(item.line, item.text, f"{word}: the job has the environment of the launch")


def _signal(wanted: Requested, item: Directive, remarks: Remarks) -> None:
    match = re.fullmatch(r"(?:([RB]+):)?(?:SIG)?([A-Z0-9]+)(?:@(\d{1,5}))?", (item.value or "").upper())
    if match is None:
        raise InputError(f"line {item.line}: {item.text!r}: valid: [B:]SIGNAL[@SECONDS]")
    own = "slurmopt asks the job to save before the time limit, and restarts it"
    if "B" in (match[1] or "") or match[2] not in SIGNALS:
        remarks.own(item.line, item.text, own)
        return
    wanted.restart["forward"] = match[2]
    if match[3] and int(match[3]):
        wanted.restart["lead"] = f"{match[3]}s"
    remarks.moved(item.line, item.text, ", ".join(f"restart.{key}: {value}" for key, value in wanted.restart.items()))


def _job_name(wanted: Requested, item: Directive, remarks: Remarks) -> None:
    wanted.name = item.value
    remarks.own(item.line, item.text, _OWN["job-name"])


def _other(wanted: Requested, item: Directive, remarks: Remarks) -> None:
    keys = {key.name for key in fields(Resources)} - {"time"}
    if item.name not in LONG:
        remarks.left_out(item.line, item.text, f"sbatch has no option {item.name!r}{did_you_mean(item.name, LONG)}")
    elif item.name in _LEFT_OUT or item.name.replace("-", "_") in keys or item.name in OWN_OPTIONS:
        remarks.left_out(item.line, item.text, _LEFT_OUT.get(item.name, "slurmopt has no key for it"))
    else:
        wanted.extra[item.name] = True if item.value is None or LONG[item.name] == NONE else item.value
        remarks.moved(item.line, item.text, f"resources.extra.{item.name}")


def _own(_: Requested, item: Directive, remarks: Remarks) -> None:
    remarks.own(item.line, item.text, _OWN[item.name] or "slurmopt does this itself")


_READERS: dict[str, Callable[[Requested, Directive, Remarks], None]] = {
    **dict.fromkeys(_OWN, _own),
    **dict.fromkeys(_SAME_NAME, _same),
    "time": _time,
    "mem": _memory("memory"),
    "mem-per-cpu": _memory("memory_per_cpu"),
    "mem-per-gpu": _memory("memory_per_gpu"),
    "exclusive": _exclusive,
    "chdir": _chdir,
    "array": _array,
    "export": _export,
    "signal": _signal,
    "job-name": _job_name,
}
