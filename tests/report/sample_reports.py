"""Reports made by hand, for the tests of how they are shown."""

from __future__ import annotations

import math

from slurmopt.ledger import buckets
from slurmopt.ledger.findings.finding import CERTAIN, LIKELY, Abstention, Finding
from slurmopt.report.run.run_report import AttemptRow, Cost, Line, NodeRow, Panel, RunReport, Share, Usage

START = 1_763_000_000.0
HOUR = 3600.0
_HOURS = {
    buckets.COMPUTE: 2520.5, buckets.COMMUNICATION: 310.0, buckets.INPUT: 702.4, buckets.CHECKPOINT: 41.0,
    buckets.PHASES: 120.0, buckets.STARTUP: 33.0, buckets.HEALTH: 2.0, buckets.RENDEZVOUS: 8.0, buckets.RESTORE: 21.0,
    buckets.FIRST_STEPS: 25.6, buckets.STALLED: 64.0, buckets.LOST: 58.5, buckets.WIND_DOWN: 12.0, buckets.UNUSED: 0.0,
    buckets.UNKNOWN: 1.0,
}  # fmt: skip


def report(nodes: int = 8) -> RunReport:
    """A run of three attempts that waits for input and has a slow node."""
    total = sum(_HOURS.values()) * HOUR
    return RunReport(
        label="llama-7b/20251113-021320-4f1c",
        state="finished",
        experiment="llama_7b",
        folder="/home/ada/runs/llama-7b/20251113-021320-4f1c",
        backend="sbatch",
        jobs=["41220", "41377"],
        created=START,
        now=START + 70 * HOUR,
        device="NVIDIA H100 80GB HBM3",
        nodes=nodes,
        devices=nodes * 8.0,
        wall=66 * HOUR,
        ran=61.2 * HOUR,
        queued=4.8 * HOUR,
        step=120_000,
        total_steps=120_000,
        step_rate=0.62,
        rates={"tokens": 1.3e6, "mfu": 0.38},
        device_seconds=total,
        shares=[Share(name, count * HOUR, count * HOUR / total) for name, count in _HOURS.items()],
        cost=Cost(total / HOUR * 2.5, "USD", 2.5, "site prices of 2026-10-01", 2.2e9 * 3.6, 120.0),
        usage=[
            Usage("GPU activity", 0.81, "81.0 % of the time"),
            Usage("SM activity", 0.52, "52.0 %"),
            Usage("tensor activity", "not supported", "not supported"),
            Usage("GPU memory", 0.77, "61.2 GiB at most, of 80.0 GiB"),
            Usage("host memory", 0.31, "618.0 GiB at most, of 2.0 TiB"),
            Usage("CPU", 0.93, "89.3 of 96 cores"),
        ],
        node_rows=[_node(index) for index in range(nodes)],
        attempts=_attempts(nodes),
        findings=_findings(),
        abstentions=[Abstention("throttled", ("throttle counters",)), Abstention("leak", ("an hour of series",))],
        helped=["memory below what was asked: was there in the run before, and is gone"],
        notes=["the energy of node7 is missing for 3 h", "sacct was not asked: no accounting here"],
        panels=_panels(nodes),
    )


def _node(index: int) -> NodeRow:
    slow = index == 0
    readings = {
        "util": 0.61 if slow else 0.84, "sm": 0.33 if slow else 0.54, "tensor": "not supported",
        "memory": 61.2 * 2**30, "power": 402.0 if slow else 565.0, "temperature": 71.0, "throttled": 0.0,
        "input": 0.31 if slow else 0.18, "cpu": 95.7 if slow else 88.0, "host_memory": 618 * 2**30, "step_rate": 0.62,
    }  # fmt: skip
    remark = "GPU activity 61 % (median 84 %)" if slow else ""
    return NodeRow(f"node{index + 1}", 8, tuple(range(8 * index, 8 * index + 8)), readings, remark)


def _attempts(nodes: int) -> list[AttemptRow]:
    spans = ((0.6, 20.1, "preemption"), (22.0, 40.9, "node failure"), (43.2, 66.0, "finished"))
    return [
        AttemptRow(
            number=number, job="41220" if number < 2 else "41377", nodes=f"node[1-{nodes}]", node_count=nodes,
            devices=nodes * 8.0, start=START + begin * HOUR, end=START + end * HOUR, queued=1800.0 * (number + 1),
            restart=310.0 if number else 240.0, first_step=40_000 * number, last_step=40_000 * (number + 1),
            steps_lost=(212, 48, 0)[number], cause=cause, error="node5: Node failure" if number == 1 else None,
            seconds=(end - begin) * HOUR, device_seconds=(end - begin) * HOUR * nodes * 8,
        )
        for number, (begin, end, cause) in enumerate(spans)
    ]  # fmt: skip


def _findings() -> list[Finding]:
    return [
        Finding(
            "input-bound", "the GPUs wait for the data loader 18 % of the time", CERTAIN,
            ("input wait 18.4 % of step time, on all ranks", "CPU 95.7 of 96 cores in use, 41 % of the time throttled"),
            702.4, "+data.num_workers=24", None, None, None,
        ),
        Finding(
            "straggler", "node1 is 9 % slower than the others", LIKELY,
            ("backward of rank 3 takes 412 ms, the median 377 ms", "power 402 W, the median 565 W"),
            88.0, "resources.exclude=node1", "node1", 3, 3,
        ),
    ]  # fmt: skip


def _panels(nodes: int) -> list[Panel]:
    times = tuple(START + 0.6 * HOUR + index * 600.0 for index in range(390))
    gaps = [(20.1, 22.0), (40.9, 43.2)]

    def curve(level: float, wobble: float, period: float) -> tuple[float | None, ...]:
        return tuple(
            None
            if any(begin * HOUR < time - START < end * HOUR for begin, end in gaps)
            else max(0.0, level + wobble * math.sin((time - START) / period))
            for time in times
        )

    return [
        Panel("Step rate", "steps/s", times, (Line("median of the ranks", curve(0.62, 0.03, 9000)),)),
        Panel(
            "GPU activity", "percent", times,
            (Line("mean", curve(0.81, 0.05, 7000)), Line("lowest node: node1", curve(0.61, 0.08, 5000))), 1.0,
        ),
        Panel("GPU memory", "bytes", times, (Line("peak", curve(61.2 * 2**30, 2**28, 4000)),), 80.0 * 2**30),
        Panel("Power of a GPU", "watts", times, (Line("mean", curve(545, 30, 8000)),), 700.0),
    ]  # fmt: skip
