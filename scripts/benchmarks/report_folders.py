"""Run folders for reports, as four days on many nodes leave them, and a thousand runs of one user."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.workbench import ROOT

sys.path.insert(0, str(ROOT))

from slurmopt.run_folder import time_spent
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder

START = 1_790_000_000.0
DAY = 86400.0
GPU_COLUMNS = (
    "util", "mem_util", "memory", "memory_peak", "power", "temperature", "margin", "clock_sm", "clock_mem",
    "throttle_power", "throttle_sync", "throttle_thermal", "throttle_hw_thermal", "throttle_brake", "pcie_rx",
    "pcie_tx", "nvlink_rx", "nvlink_tx", "sm", "tensor", "dram", "occupancy", "fp16", "others",
)  # fmt: skip
NODE_COLUMNS = (
    "cpu", "cpu_quota_throttled", "memory", "memory_peak", "page_cache", "io_read", "io_write", "disk_read",
    "disk_write",
)  # fmt: skip
RANK_COLUMNS = (
    "step", "steps", "tokens", "samples", "ddp_backward", "ddp_exposed", "running.share", "input.share",
    "checkpoint.share", "evaluation.share",
)  # fmt: skip
LIFE = {"starting": 4.0, "checking": 2.0, "importing": 20.0, "waiting": 5.0, "restoring": 30.0, "first step": 60.0}


def make_large_run(run: RunFolder, nodes: int, gpus: int, attempts: int, days: float) -> None:
    """One run of `attempts` attempts, `days` long together, each with checkpoints every ten minutes."""
    run.make()
    run.config.write_text(f"task:\n  per: rank\nresources:\n  nodes: {nodes}\n  gpus_per_node: {gpus}\n")
    _append(run, 0.0, "created", name=run.name, id=run.id, backend="sbatch")
    _append(run, 1.0, "submitted", token="slurmopt:1", backend="sbatch", job="900000001")
    length = days * DAY / attempts
    for number in range(attempts):
        start = START + number * length + 60
        _begin(run, number, start, nodes, gpus)
        steps = (number * 1000 + 1, (number + 1) * 1000)
        beats = _heartbeats(run, number, start, length - 60, nodes, gpus, steps)
        _series(run, number, start, length - 60, nodes, gpus, steps)
        for saved in range(0, int(length), 600):
            fields = {
                "attempt": number,
                "step": steps[0] + saved // 600,
                "tier": "shared",
                "checkpoint": f"step-{saved}",
            }
            _append(run, start + saved, "checkpoint", **fields, bytes=10**11, seconds=20.0)
        _end(run, number, start + length - 60, beats, number < attempts - 1, steps[1])


def make_user_runs(base: Path, count: int) -> None:
    """`count` ended runs of 20 experiments, of two attempts on two nodes of eight GPUs each."""
    for number in range(count):
        run = RunFolder(base / f"experiment-{number % 20}" / f"20250101-{number:06}-aaaa")
        run.make()
        run.config.write_text("resources:\n  nodes: 2\n  gpus_per_node: 8\n")
        _append(run, 0.0, "created", name=run.name, id=run.id, backend="sbatch")
        _append(run, 1.0, "submitted", token=f"slurmopt:{number}", backend="sbatch", job=str(900_000_000 + number))
        for attempt in range(2):
            start = START + 10 + attempt * 4000
            _begin(run, attempt, start, 2, 8, job=str(900_000_000 + number))
            steps = (attempt * 1000 + 1, (attempt + 1) * 1000)
            beats = _heartbeats(run, attempt, start, 3600.0, 2, 8, steps)
            _end(run, attempt, start + 3600, beats, attempt == 0, steps[1])


def _append(run: RunFolder, after: float, event: str, **fields: Any) -> None:
    time = after if after > START / 2 else START + after
    with open(run.events, "a") as journal:
        journal.write(json.dumps({"time": time, "event": event, **fields}) + "\n")


def _begin(run: RunFolder, attempt: int, start: float, nodes: int, gpus: int, job: str = "900000001") -> None:
    named = f"node[1-{nodes}]" if nodes > 1 else "node1"
    _append(run, start, "attempt", attempt=attempt, job=job, nodes=named, log_from=0, gpus=gpus, cpus="96")


def _end(run: RunFolder, attempt: int, time: float, beats: list[Heartbeat], comes_back: bool, step: int) -> None:
    told = {"cause": "time limit" if comes_back else "finished", "next": "requeue" if comes_back else None}
    outcome = {"outcome": "requeue" if comes_back else "finished", "exit_code": 0, "rank": None, "node": None}
    spent = {time_spent.FIELD: time_spent.of_heartbeats(beats)}
    _append(run, time, "end", attempt=attempt, **outcome, **told, step=step, durable=step - 5, **spent)
    if comes_back:
        _append(run, time + 0.1, "requeue", attempt=attempt, job="900000001")


def _heartbeats(
    run: RunFolder, attempt: int, start: float, length: float, nodes: int, gpus: int, steps: tuple[int, int]
) -> list[Heartbeat]:
    run.heartbeat(attempt, 0).parent.mkdir(parents=True, exist_ok=True)
    steady = length - 10 - sum(LIFE.values())
    beats = []
    for rank in range(nodes * gpus):
        wait = steady * (0.1 + 0.01 * (rank % 7))
        beat = Heartbeat(
            rank, nodes * gpus, f"node{rank // gpus + 1}", 1000 + rank, 10.0, start + 5, start + length - 5, "ended",
            step=steps[1], step_time=start + length - 60, first_step=steps[0], first_step_time=start + 126,
            spent={**LIFE, "input": wait, "running": steady - wait},
            counted={"steps": 1000.0, "tokens": 1e9, "ddp_sampled": 10.0, "ddp_exposed": 0.5},
            gpus=[f"GPU-{rank:08x}"], outcome={"outcome": "finished", "time": start + length - 5, "exit_code": 0},
        )  # fmt: skip
        run.heartbeat(attempt, rank).write_text(json.dumps(vars(beat)) + "\n")
        beats.append(beat)
    return beats


def _series(
    run: RunFolder, attempt: int, start: float, length: float, nodes: int, gpus: int, steps: tuple[int, int]
) -> None:
    """Of each node: a row for each hour, for each ten minutes of the last sixteen hours, and 1 MiB of the newest."""
    random = Random(attempt)
    run.series(attempt, "node1").parent.mkdir(parents=True, exist_ok=True)
    recent_rows = 0.9 * 2**20 / (8 * (gpus * (len(GPU_COLUMNS) + len(RANK_COLUMNS)) + len(NODE_COLUMNS)))
    old = int(max(0.0, length - 16 * 3600) // 3600) * 3600
    spans = [(start, start + old, 3600.0), (start + old, start + length, 600.0)]
    for node in range(nodes):
        name = f"node{node + 1}"
        columns = [f"gpu{gpu}.{column}" for gpu in range(gpus) for column in GPU_COLUMNS]
        columns += [f"node.{column}" for column in NODE_COLUMNS]
        columns += [f"rank{node * gpus + gpu}.{column}" for gpu in range(gpus) for column in RANK_COLUMNS]
        facts = {"gpus": [{"index": gpu, "uuid": f"GPU-{gpu}", "name": "NVIDIA H100 80GB HBM3"} for gpu in range(gpus)]}
        header = {
            "slurmopt_series": 1,
            "node": name,
            "attempt": attempt,
            "columns": columns,
            "absent": {},
            "facts": facts,
        }
        at = [random.uniform(0.1, 0.3) for _ in columns]
        rows = [row for span in spans for row in _rows(*span, start, length, columns, at, steps)]
        run.series(attempt, name).write_text("\n".join([json.dumps(header), *rows]) + "\n")
        newest = _rows(start + length - 10 * int(recent_rows), start + length, 10.0, start, length, columns, at, steps)
        run.recent_series(attempt, name).write_text("\n".join([json.dumps(header), *newest]) + "\n")


def _rows(
    since: float, until: float, every: float, start: float, length: float, columns: list[str], at: list[float],
    steps: tuple[int, int],
) -> list[str]:  # fmt: skip
    rows = []
    for number in range(int((until - since) // every)):
        end = since + (number + 1) * every
        step = int(steps[0] + (steps[1] - steps[0]) * (end - start) / length)
        values = [
            str(step) if column.endswith(".step") else f"{value + (number % 9) / 100:.5g}"
            for column, value in zip(columns, at, strict=True)
        ]
        rows.append(f"[{end:.2f},{every + number % 5 / 1000:.3f},{','.join(values)}]")
    return rows
