"""`python -m slurmopt.job.monitor.sources.nvidia`: NVML's values of this job's GPUs, and milliseconds per call."""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterable

from slurmopt.errors import one_line
from slurmopt.job.monitor.sources.nvidia import open_source
from slurmopt.job.monitor.sources.nvidia.source import COLUMNS, NvidiaSource


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m slurmopt.job.monitor.sources.nvidia",
        description="Shows what the sampler reads of this job's NVIDIA GPUs, and how long each call of NVML takes.",
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="time between the two readings (default: 1)")
    seconds = parser.parse_args().seconds
    if not 0.1 <= seconds <= 3600:
        parser.error(f"--seconds: {seconds:g} is not valid; valid is 0.1 to 3600")
    source = open_source()
    if not isinstance(source, NvidiaSource):
        print("slurmopt: this process was given no NVIDIA GPU", file=sys.stderr)
        return 1
    return _show(source, seconds)


def _show(source: NvidiaSource, seconds: float) -> int:
    if line := source.facts().get("gpu_error"):
        print(f"slurmopt: {line}", file=sys.stderr)
        return 1
    source.read()
    time.sleep(seconds)
    calls: dict[str, list[tuple[float, str]]] = defaultdict(list)
    source.watch_calls(lambda name, took, why: calls[name].append((took, why)))
    row = source.read()
    print(f"driver {source.facts()['driver']}, {seconds:g} s between two readings\n")
    for gpu in source.facts()["gpus"]:
        _print_gpu(gpu, row, source.absent())
    _print_table(("call", "times", "ms each", "without a value"), _by_call(calls))
    _print_table(("field", "ms, as NVML tells"), _by_field(source))
    for event in source.events():
        print(one_line(", ".join(f"{key}: {value}" for key, value in event.items())))
    source.close()
    return 0


def _print_gpu(gpu: dict[str, object], row: dict[str, float], absent: dict[str, str]) -> None:
    print(
        one_line(f"gpu{gpu['index']}: " + ", ".join(f"{key} {value}" for key, value in gpu.items() if key != "index"))
    )
    names = [f"gpu{gpu['index']}.{column}" for column in COLUMNS]
    lines = ((name, f"{row[name]:.6g}" if name in row else absent.get(name, "no value yet")) for name in names)
    _print_table(("column", "value"), lines)


def _by_call(calls: dict[str, list[tuple[float, str]]]) -> Iterable[tuple[str, ...]]:
    for name, told in sorted(calls.items(), key=lambda item: -sum(took for took, _ in item[1])):
        reasons = ", ".join(sorted({why for _, why in told if why}))
        yield name, str(len(told)), f"{1000 * sum(took for took, _ in told) / len(told):.3f}", reasons


def _by_field(source: NvidiaSource) -> Iterable[tuple[str, ...]]:
    for gpu, latencies in source.field_latencies().items():
        for (number, scope), microseconds in latencies.items():
            yield f"gpu{gpu} {number}" + (f" scope {scope}" if scope else ""), f"{microseconds / 1000:.3f}"


def _print_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    table = [head, *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(head))]
    for row in table:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    print()


if __name__ == "__main__":
    sys.exit(main())
