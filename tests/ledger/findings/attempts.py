"""Builds the records of made-up attempts: what the ranks, the sampler and the watchdog would have left.

A column of a series is one number (the same in all rows) or a list with a number for each row, so that files stay
small. `expanded` makes the values that the rules are given, with noise where asked for.
"""

from __future__ import annotations

import random
from typing import Any

from slurmopt.ledger.findings.config_facts import config_facts
from slurmopt.ledger.findings.evidence import AttemptEvidence
from slurmopt.ledger.findings.records import evidence_of
from slurmopt.ledger.record import AttemptRecord, RankRecord
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.series.series import Series

START = 1_700_000_000.0
ROW = 30.0
GIB = 1 << 30
H100 = {
    "util": 98.0, "memory": 60.0 * GIB, "memory_peak": 64.0 * GIB, "power": 640.0, "temperature": 62.0,
    "clock_sm": 1700.0, "throttle_power": 0.6, "throttle_thermal": 0.0, "throttle_hw_thermal": 0.0,
    "throttle_brake": 0.0, "sm": 0.85, "tensor": 0.45, "dram": 0.5, "others": 0.0,
}  # fmt: skip
GPM = ("sm", "tensor", "dram")

Attempt = dict[str, Any]


def attempt(
    *,
    nodes: int = 1,
    gpus: int = 8,
    ranks: int | None = None,
    seconds: float = 3600.0,
    startup: float = 100.0,
    step: float = 0.25,
    number: int = 0,
    cpus: int = 12,
    ddp: bool = True,
    card: str = "NVIDIA H100 80GB HBM3",
    cause: str | None = "finished",
    spent: dict[str, float] | None = None,
    config: dict[str, Any] | None = None,
) -> Attempt:
    """A healthy attempt: each rank has a GPU, makes a step in `step` seconds, and waits little. `spent`: activities
    as shares of the time after start-up, the rest is running. `cpus`: of each rank. Without `gpus` it is of CPUs."""
    per_node = gpus or ranks or 1 if ranks is None else ranks
    names = [f"node{at + 1}" for at in range(nodes)]
    made: Attempt = {
        "record": {
            "number": number, "start": START, "end": START + seconds, "cause": cause, "unit": "GPU" if gpus else "CPU",
            "gpus": {name: float(gpus or cpus * per_node) for name in names},
        },
        "ranks": [], "series": [], "config": config or {},
    }  # fmt: skip
    for name in names:
        made["series"].append(_series(name, seconds, per_node, gpus, cpus, card, _traffic(nodes)))
        for local in range(per_node):
            made["ranks"].append(
                _rank(len(made["ranks"]), name, local, seconds, startup, step, gpus, cpus, ddp, nodes * per_node)
            )
    set_spent(made, spent or {})
    return made


def _traffic(nodes: int) -> dict[str, float]:
    return {"net.eth0.rx": 2e6, "net.eth0.tx": 2e6} | ({"ib.mlx5_0.rx": 4e9, "ib.mlx5_0.tx": 4e9} if nodes > 1 else {})


def _series(
    name: str, seconds: float, ranks: int, gpus: int, cpus: int, card: str, traffic: dict[str, float]
) -> dict[str, Any]:
    values: dict[str, Any] = {
        "node.cpu": 1.6 * ranks, "node.cpu_quota_throttled": 0.0, "node.memory": 20.0 * ranks * GIB,
        "node.memory_peak": 22.0 * ranks * GIB, "node.page_cache": 50.0 * GIB, "node.io_read": 30e6 * ranks,
        "node.io_write": 1e6, "node.disk_read": 2e6, "node.disk_write": 1e6, **traffic,
    }  # fmt: skip
    for index in range(gpus):
        values |= {f"gpu{index}.{column}": value for column, value in H100.items()}
    return {
        "node": name, "rows": int(seconds // ROW), "values": values, "absent": {}, "events": [],
        "facts": {
            "cpus": cpus * ranks, "memory_limit": 2000.0 * GIB,
            "gpus": [
                {"index": index, "uuid": f"GPU-{name}-{index}", "name": card, "memory": 80 * GIB, "power_limit": 700.0}
                for index in range(gpus)
            ],
        },
    }  # fmt: skip


def _rank(
    rank: int, node: str, local: int, seconds: float, startup: float, step: float, gpus: int, cpus: int, ddp: bool,
    world: int,
) -> dict[str, Any]:  # fmt: skip
    steps = int((seconds - startup) / step)
    counted = {"steps": float(steps)}
    if ddp and world > 1:
        counted |= {
            "ddp_sampled": 40.0, "ddp_forward": 40 * 0.2 * step, "ddp_backward": 40 * 0.45 * step,
            "ddp_communication": 40 * 0.3 * step, "ddp_exposed": 40 * 0.04 * step,
        }  # fmt: skip
    return {
        "rank": rank, "node": node, "gpus": 1.0 if gpus else float(cpus),
        "devices": [f"GPU-{node}-{local}"] if gpus else [],
        "startup": startup, "seconds": seconds, "steps": steps, "counted": counted, "spent": {},
    }  # fmt: skip


def set_spent(made: Attempt, shares: dict[str, float], ranks: list[int] | None = None) -> None:
    """Sets what ranks spend the time after start-up on, as shares of it; and the columns of their series."""
    for rank in made["ranks"]:
        if ranks is None or rank["rank"] in ranks:
            told = {"input": 0.01, "checkpoint": 0.005} | shares
            told["running"] = 1 - sum(told.values())
            begun = rank["startup"]
            spent = {"starting": 0.05, "checking": 0.05, "importing": 0.3, "waiting": 0.1, "first step": 0.5}
            rank["spent"] = {name: round(share * begun, 3) for name, share in spent.items()}
            rank["spent"] |= {
                name: round(share * (rank["seconds"] - begun), 3) for name, share in told.items() if share
            }
            values = series_of(made, rank["node"])["values"]
            start = f"rank{rank['rank']}."
            for column in [name for name in values if name.startswith(start)]:
                del values[column]
            values |= {f"{start}{name}.share": round(share, 4) for name, share in told.items() if share}
            values[f"{start}steps"] = round(rank["steps"] / (rank["seconds"] - begun), 4)


def series_of(made: Attempt, node: str) -> dict[str, Any]:
    found: dict[str, Any] = next(series for series in made["series"] if series["node"] == node)
    return found


def set_node(made: Attempt, node: str | None = None, **columns: Any) -> None:
    """Sets columns of a node, or of all; None: not measured."""
    for series in made["series"]:
        if node in (None, series["node"]):
            _set(series["values"], "node", columns)


def set_gpu(made: Attempt, node: str | None = None, index: int | None = None, **columns: Any) -> None:
    """Sets columns of a GPU, or of all; None: not measured."""
    for series in made["series"]:
        for fact in series["facts"]["gpus"]:
            if node in (None, series["node"]) and index in (None, fact["index"]):
                _set(series["values"], f"gpu{fact['index']}", columns)


def _set(values: dict[str, Any], part: str, columns: dict[str, Any]) -> None:
    for name, value in columns.items():
        if value is None:
            values.pop(f"{part}.{name}", None)
        else:
            values[f"{part}.{name}"] = value


def set_ddp(made: Attempt, ranks: list[int] | None = None, **seconds: float) -> None:
    """Sets DDP's timings of ranks, in seconds of a step: forward, backward, exposed."""
    for rank in made["ranks"]:
        if ranks is None or rank["rank"] in ranks:
            for name, value in seconds.items():
                rank["counted"][f"ddp_{name}"] = round(40 * value, 4)


def without_series(made: Attempt) -> Attempt:
    return {**made, "series": []}


def without_gpm(made: Attempt, why: str = "not supported") -> Attempt:
    """As on a GPU older than Hopper."""
    set_gpu(made, **dict.fromkeys(GPM))
    for series in made["series"]:
        series["absent"] = {f"gpu{fact['index']}.{name}": why for fact in series["facts"]["gpus"] for name in GPM}
    return made


def event(made: Attempt, node: str, word: str, **fields: Any) -> None:
    series_of(made, node)["events"].append({"event": word, "time": START + 1000, **fields})


def evidence(made: Attempt, noise: random.Random | None = None) -> AttemptEvidence:
    """The evidence of an attempt; with noise each measured value is up to 5 % larger or smaller."""
    record = made["record"]
    config = config_facts(made["config"], made.get("sweep", False))
    return evidence_of(
        AttemptRecord(
            record["number"], record["start"], record["end"], dict(record["gpus"]), cause=record["cause"],
            unit=record["unit"], alive=record["cause"] is None,
            ranks=tuple(_record(rank, noise) for rank in made["ranks"]),
        ),
        {rank["rank"]: _beat(rank) for rank in made["ranks"]},
        [_expanded(series, noise) for series in made["series"]],
        config=config,
        buckets=made.get("buckets"),
        hang=made.get("hang"),
        saves=made.get("saves"),
    )  # fmt: skip


def _jitter(noise: random.Random | None) -> float:
    return 1.0 if noise is None else noise.uniform(0.95, 1.05)


def _record(rank: dict[str, Any], noise: random.Random | None) -> RankRecord:
    stepped = rank["steps"] is not None
    return RankRecord(
        rank["rank"], rank["node"], rank["gpus"], START, START + rank["seconds"], True,
        spent={name: seconds * _jitter(noise) for name, seconds in rank["spent"].items()},
        counted={
            name: value * (_jitter(noise) if name.startswith("ddp_") and name != "ddp_sampled" else 1.0)
            for name, value in rank["counted"].items()
        },
        first_step=0 if stepped else None, first_step_time=START + rank["startup"] if stepped else None,
        step=rank["steps"], step_time=START + rank["seconds"] if stepped else None,
    )  # fmt: skip


def _beat(rank: dict[str, Any]) -> Heartbeat:
    beat = Heartbeat(rank["rank"], 1, rank["node"], 1, started=START, gpus=rank["devices"])
    beat.total_steps = rank.get("total_steps")
    return beat


def _expanded(series: dict[str, Any], noise: random.Random | None) -> Series:
    rows = series["rows"]
    made = Series(series["node"], 0, absent=series["absent"], facts=series["facts"], events=series["events"])
    made.times = [START + ROW * (row + 1) for row in range(rows)]
    made.seconds = [ROW] * rows
    for name, value in series["values"].items():
        values = value if isinstance(value, list) else [value] * rows
        scale = _jitter(noise)
        most = 1.0 if name.endswith(".share") else float("inf")
        made.values[name] = [None if item is None else min(most, item * scale * _jitter(noise)) for item in values]
    return made
