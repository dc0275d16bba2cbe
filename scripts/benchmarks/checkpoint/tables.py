"""What the checkpoint bench found, as tables: one row a library, then one row a target."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.report import Report

MIB = 1 << 20
WRITER_MIB = 64
"""What the writer process may take beside the snapshots: Python itself, xxhash and the bookkeeping."""
LEFT_OUT = {
    "slurmopt": "nothing: checksums verified on load, files and folders synced, atomic commit",
    "slurmopt, one buffer": "the same; a save waits for the one before it",
    "DCP async, thread": "no checksum; the folder was synced by the bench",
    "DCP async, process": "no checksum; the folder was synced by the bench",
    "torchsnapshot": "no checksum, no fsync: synced by the bench",
    "torch.save": "blocks until it is done; no checksum verified on load, synced by the bench",
}
LEFT_OUT_UPLOAD = {
    "boto3.upload_file": "CRC-32 and, over http, SHA-256 of each part",
    "boto3, tuned": "no checksum of any kind",
    "slurmopt": "CRC-32 of each part, xxh3 of each 8 MiB",
    "s3torchconnector": "CRC-32C as its library has it",
}
Found = dict[str, list[dict[str, Any]]]
Results = list[dict[str, Any]]


def tell_saves(report: Report, found: Found) -> None:
    _keep(report, "checkpoint", found)
    size = found["slurmopt"][0]["bytes"]
    print(
        f"\ncheckpoints: {size / MIB:,.0f} MiB of fp32, a transformer with AdamW; medians, x: of the bare work beside"
    )
    _print([_HEAD, *(_row(name, results, found["nobody"]) for name, results in found.items() if name != "nobody")])
    ours, nobody = found["slurmopt"], found["nobody"]
    print(f"\npre-faulting the arena, nobody in the way: {_median(ours, 'pre-fault'):.2f} s")
    ours_steps, free_steps = _median_sum(ours, "first steps"), _median_sum(nobody, "first steps")
    steps = len(ours[0]["found"]["first steps"])
    print(f"the first {steps} steps meanwhile: {ours_steps:.2f} s, without a Checkpointer {free_steps:.2f} s")
    _save_targets(report, found)


def tell_uploads(report: Report, scheme: str, found: Found) -> None:
    _keep(report, f"upload, {scheme}", found)
    print(f"\nS3 upload over {scheme} to a server that keeps nothing, on the same cores")
    rows: list[tuple[str, ...]] = [("client", "median s", "peak MiB", "with")]
    for name, results in found.items():
        seconds = statistics.median(result["seconds"] for result in results)
        peak = max(result["peak"] for result in results) / MIB
        rows.append((name, f"{seconds:.3f}", f"{peak:.0f}", LEFT_OUT_UPLOAD[name]))
    _print(rows)
    base, limit = ("boto3.upload_file", 0.25) if scheme == "http" else ("boto3, tuned", 1.0)
    ratios = [one["seconds"] / other["seconds"] for one, other in zip(found["slurmopt"], found[base], strict=True)]
    _target(report, f"S3 upload over {scheme}, of {base}", statistics.median(ratios), limit)


def _save_targets(report: Report, found: Found) -> None:
    ours, one_buffer = found["slurmopt"], found["slurmopt, one buffer"]
    for which in ("first", "later"):
        _target(report, f"blocked, {which} save, of memcpy", _blocked(ours, which), 1.5)
    _target(report, "until durable, of direct I/O", _durable(ours), 1.5)
    quickest = min(("DCP async, thread", "DCP async, process"), key=lambda name: _median(found[name], "durable, later"))
    _target(report, f"until durable, of {quickest}", _beside(ours, found[quickest], "durable, later"), 0.5)
    _target(report, "restore, of direct I/O", _restored(ours), 1.2)
    _target(report, "training lost, of DCP async, process", _beside(ours, found["DCP async, process"], "lost"), 0.5)
    size = ours[0]["bytes"]
    for buffers, results in ((2, ours), (1, one_buffer)):
        limit = buffers + WRITER_MIB * MIB / size
        what = f"host memory of the state, {buffers} buffer{'s' * (buffers - 1)}, and {WRITER_MIB} MiB"
        _target(report, what, _memory(results, found["nobody"]) / size, round(limit, 3))


def _target(report: Report, what: str, measured: float, limit: float) -> None:
    report.target(f"checkpoint: {what}", measured, limit, "x", binding=False)


_HEAD = (
    "library", "blocked: first ms", "later ms", "x copy", "durable s", "x write", "restore s", "x read",
    "training lost s", "memory x state", "left out",
)  # fmt: skip


def _row(name: str, results: Results, nobody: Results) -> tuple[str, ...]:
    milliseconds = (f"{1000 * _median(results, f'blocked, {which}'):.0f}" for which in ("first", "later"))
    return (
        name,
        *milliseconds,
        f"{_blocked(results, 'first'):.2f} {_blocked(results, 'later'):.2f}",
        f"{_median(results, 'durable, later'):.3f}",
        f"{_durable(results):.2f}",
        f"{_median(results, 'restore'):.3f}",
        f"{_restored(results):.2f}",
        f"{_median(results, 'lost'):.2f}",
        f"{_memory(results, nobody) / results[0]['bytes']:.2f}",
        LEFT_OUT[name],
    )


def _all(results: Results, name: str) -> list[float]:
    return [value for result in results for value in result["found"][name]]


def _median(results: Results, name: str) -> float:
    return statistics.median(_all(results, name))


def _median_sum(results: Results, name: str) -> float:
    sums: list[float] = [sum(result["found"][name]) for result in results]
    return statistics.median(sums)


def _ratio(results: Results, pairs: Callable[[dict[str, Any]], list[tuple[float, float]]]) -> float:
    """Each next to its own neighbour; the median of all."""
    return statistics.median(one / other for result in results for one, other in pairs(result["found"]))


def _blocked(results: Results, which: str) -> float:
    bare = slice(0, 1) if which == "first" else slice(1, None)
    return _ratio(results, lambda found: list(zip(found[f"blocked, {which}"], found["memcpy"][bare], strict=True)))


def _durable(results: Results) -> float:
    return _ratio(results, lambda found: list(zip(found["durable, later"], found["direct write"][1:], strict=True)))


def _restored(results: Results) -> float:
    return _ratio(results, lambda found: list(zip(found["restore"], found["direct read"], strict=True)))


def _beside(ours: Results, theirs: Results, name: str) -> float:
    """Round by round."""
    ratios = [_median([one], name) / max(1e-9, _median([other], name)) for one, other in zip(ours, theirs, strict=True)]
    return statistics.median(ratios)


def _memory(results: Results, nobody: Results) -> float:
    """Bytes beyond what the training takes by itself."""
    beyond: float = _median(results, "memory") - _median(nobody, "memory")
    return beyond


def _keep(report: Report, bench: str, found: Found) -> None:
    """Every single number, for --json."""
    for name, results in found.items():
        report.details.setdefault(bench, {})[name] = results


def _print(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), flush=True)
