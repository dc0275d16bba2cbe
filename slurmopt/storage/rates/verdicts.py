"""Verdicts on measured rates: below which a training waits for storage. Pure."""

from __future__ import annotations

from slurmopt.checks.result import CheckResult
from slurmopt.storage.rates.rate import Rate
from slurmopt.units import human_seconds

_CHECKPOINT_GIB = 100
_LEAST = {
    "sequential write": 200.0,
    "sequential read": 200.0,
    "random read": 500.0,
    "random write": 200.0,
    "small file write": 200.0,
    "small file read": 500.0,
    "create": 200.0,
    "stat": 1000.0,
    "remove": 200.0,
}
"""Below these a single process waits for storage in most trainings; below a tenth of them, in all of them."""
_MENDS = {
    "sequential write": "use a faster file system; on Lustre: slurmopt storage stripe FOLDER --kind checkpoints",
    "sequential read": "use node-local disks; on Lustre: slurmopt storage stripe FOLDER --kind datasets --migrate",
    "random read": "read samples in order from shards, or from node-local disks",
    "random write": "append or write whole files instead",
    "small file write": "write fewer and larger files (tar, WebDataset, Parquet)",
    "small file read": "pack the samples into shards of 100 MB to 1 GB (tar, WebDataset)",
    "create": "create fewer files, in several folders",
    "stat": "list files once and keep the list; pack samples into shards",
    "remove": "create fewer files",
}


def verdict(rate: Rate) -> CheckResult:
    """pass, warn, or fail for a rate, and what it means."""
    if not rate.count:
        return CheckResult(rate.name, "fail", f"nothing was done in {human_seconds(rate.seconds)}", _MENDS[rate.name])
    text = f"{shown(rate)} ({rate.how})"
    if rate.name == "sequential write":
        took = human_seconds(_CHECKPOINT_GIB * 1024 / rate.per_second)
        text += f": a checkpoint of {_CHECKPOINT_GIB} GiB takes {took} by one process"
    least = _LEAST[rate.name]
    if rate.per_second >= least:
        return CheckResult(rate.name, "pass", text)
    return CheckResult(rate.name, "fail" if rate.per_second < least / 10 else "warn", text, _MENDS[rate.name])


def shown(rate: Rate) -> str:
    """`812 MiB/s`, `3,210 /s`."""
    number = f"{rate.per_second:,.0f}" if rate.per_second >= 100 else f"{rate.per_second:.3g}"
    return f"{number} MiB/s" if rate.unit == "MiB/s" else f"{number} /s"
