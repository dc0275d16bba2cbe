"""The columns of a node's series as other systems name them: Prometheus' names, CloudWatch's names and units.

One table for the sinks that send measurements and for the dashboards that `slurmopt export` prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

_MHZ = 1e6
_PERCENT = 0.01


@dataclass(frozen=True)
class Measurement:
    """One kind of column."""

    name: str
    """Prometheus' name; its last word is the unit."""
    about: str
    scale: float = 1.0
    """What a value of the series is multiplied with."""
    label: tuple[str, str] | None = None
    """A label that tells columns of one name apart."""
    cloudwatch: str | None = None
    """CloudWatch's name; None: not sent there, as each name is billed."""
    unit: str = "None"
    """CloudWatch's unit. Shares are sent in percent."""


def _throttle(column: str, cause: str, cloudwatch: str | None = None) -> dict[str, Measurement]:
    about = "Share of the time in which the GPU's clocks were reduced, by cause"
    name = "slurmopt_gpu_throttled_ratio"
    return {column: Measurement(name, about, label=("cause", cause), cloudwatch=cloudwatch, unit="Percent")}


def _pipe(column: str) -> dict[str, Measurement]:
    about = "Share of the cycles in which a pipe of the GPU was active"
    return {column: Measurement("slurmopt_gpu_pipe_active_ratio", about, label=("pipe", column))}


def _rates(name: str, of: str) -> dict[str, Measurement]:
    return {
        f"{name}_rx": Measurement(
            f"slurmopt_gpu_{name}_receive_bytes_per_second", f"Bytes that the GPU received by {of}"
        ),
        f"{name}_tx": Measurement(f"slurmopt_gpu_{name}_transmit_bytes_per_second", f"Bytes that the GPU sent by {of}"),
    }


GPU: dict[str, Measurement] = {
    "util": Measurement(
        "slurmopt_gpu_utilization_ratio", "Share of the time in which a kernel ran, as NVML defines it", _PERCENT,
        cloudwatch="GpuUtilization", unit="Percent",
    ),
    "mem_util": Measurement(
        "slurmopt_gpu_memory_utilization_ratio", "Share of the time in which memory was read or written", _PERCENT
    ),
    "memory": Measurement(
        "slurmopt_gpu_memory_used_bytes", "Memory in use", cloudwatch="GpuMemoryUsed", unit="Bytes"
    ),
    "memory_peak": Measurement("slurmopt_gpu_memory_peak_bytes", "The largest memory in use within the interval"),
    "power": Measurement("slurmopt_gpu_power_watts", "Mean power", cloudwatch="GpuPower"),
    "temperature": Measurement("slurmopt_gpu_temperature_celsius", "Temperature", cloudwatch="GpuTemperature"),
    "margin": Measurement("slurmopt_gpu_temperature_margin_celsius", "Degrees until the GPU slows itself down"),
    "clock_sm": Measurement("slurmopt_gpu_sm_clock_hertz", "Clock of the multiprocessors", _MHZ),
    "clock_mem": Measurement("slurmopt_gpu_memory_clock_hertz", "Clock of the memory", _MHZ),
    **_throttle("throttle_power", "power", "GpuThrottledPower"),
    **_throttle("throttle_sync", "sync_boost"),
    **_throttle("throttle_thermal", "thermal", "GpuThrottledThermal"),
    **_throttle("throttle_hw_thermal", "hardware_thermal"),
    **_throttle("throttle_brake", "power_brake"),
    **_rates("pcie", "PCIe"),
    **_rates("nvlink", "NVLink"),
    "sm": Measurement(
        "slurmopt_gpu_sm_active_ratio", "Share of the cycles in which a multiprocessor had work",
        cloudwatch="GpuSmActive", unit="Percent",
    ),
    "tensor": Measurement(
        "slurmopt_gpu_tensor_active_ratio", "Share of the cycles in which the tensor cores were active",
        cloudwatch="GpuTensorActive", unit="Percent",
    ),
    "dram": Measurement(
        "slurmopt_gpu_dram_active_ratio", "Share of the memory's bandwidth in use",
        cloudwatch="GpuDramActive", unit="Percent",
    ),
    "occupancy": Measurement("slurmopt_gpu_occupancy_ratio", "Warps in use, as a share of those that fit"),
    **_pipe("fp64"), **_pipe("fp32"), **_pipe("fp16"),
    "others": Measurement("slurmopt_gpu_other_processes", "Processes of others on the GPU"),
    "remapped_rows": Measurement("slurmopt_gpu_remapped_rows", "Rows of the memory that were remapped"),
}  # fmt: skip
"""Of columns gpuN.X, by X. The label `gpu` is N."""

NODE: dict[str, Measurement] = {
    "cpu": Measurement("slurmopt_node_cpu_cores", "CPU cores in use by the step", cloudwatch="NodeCpu"),
    "cpu_quota_throttled": Measurement(
        "slurmopt_node_cpu_throttled_ratio", "Share of the periods in which the CPU quota held the step back"
    ),
    "memory": Measurement(
        "slurmopt_node_memory_used_bytes", "Memory in use by the step", cloudwatch="NodeMemoryUsed", unit="Bytes"
    ),
    "memory_peak": Measurement("slurmopt_node_memory_peak_bytes", "The largest memory in use within the interval"),
    "page_cache": Measurement("slurmopt_node_page_cache_bytes", "Page cache of the step"),
    "io_read": Measurement("slurmopt_node_read_bytes_per_second", "Bytes that the step's processes read"),
    "io_write": Measurement("slurmopt_node_write_bytes_per_second", "Bytes that the step's processes wrote"),
    "disk_read": Measurement("slurmopt_node_disk_read_bytes_per_second", "Bytes read from block devices"),
    "disk_write": Measurement("slurmopt_node_disk_write_bytes_per_second", "Bytes written to block devices"),
}
"""Of columns node.X, by X."""

INTERFACE: dict[str, Measurement] = {
    "rx": Measurement(
        "slurmopt_network_receive_bytes_per_second", "Bytes that the node received",
        cloudwatch="NetworkReceive", unit="Bytes/Second",
    ),
    "tx": Measurement(
        "slurmopt_network_transmit_bytes_per_second", "Bytes that the node sent",
        cloudwatch="NetworkTransmit", unit="Bytes/Second",
    ),
}  # fmt: skip
"""Of columns net.DEVICE.X, ib.DEVICE.X and efa.DEVICE.X. The labels are `kind` (the first word) and `device`."""

RANK: dict[str, Measurement] = {
    "step": Measurement("slurmopt_rank_step", "The last step that the rank reported"),
    "steps": Measurement(
        "slurmopt_rank_steps_per_second", "Steps per second", cloudwatch="StepRate", unit="Count/Second"
    ),
    "tokens": Measurement("slurmopt_rank_tokens_per_second", "Tokens per second"),
    "samples": Measurement("slurmopt_rank_samples_per_second", "Samples per second"),
    "memory": Measurement("slurmopt_rank_memory_bytes", "Main memory of the rank, PSS"),
    "workers_memory": Measurement(
        "slurmopt_rank_workers_memory_bytes", "Main memory of the processes below the rank, PSS"
    ),
    "ddp_backward": Measurement("slurmopt_rank_ddp_backward_seconds", "Backward pass of a step, as DDP measures it"),
    "ddp_exposed": Measurement("slurmopt_rank_ddp_exposed_seconds", "Communication of a step that overlaps nothing"),
    "loader_fetch": Measurement("slurmopt_rank_loader_fetch_seconds", "What a batch takes a worker in the dataset"),
    "loader_fetch_cpu": Measurement("slurmopt_rank_loader_fetch_cpu_seconds", "The part of that on a CPU"),
    "loader_collate": Measurement("slurmopt_rank_loader_collate_seconds", "What a batch takes a worker in collate"),
    "loader_copy": Measurement("slurmopt_rank_loader_copy_seconds", "The copy of a batch to the GPU"),
}
"""Of columns rankR.X, by X. The label `rank` is R."""

_SHARE = ".share"
_ACTIVITY = "slurmopt_rank_activity_ratio"
_ABOUT_ACTIVITY = "Share of the time that the rank spent in an activity"
SHARES: dict[str, str] = {"input": "InputShare", "checkpoint": "CheckpointShare"}
"""Activity → CloudWatch's name, of those that are sent there."""

TRAINING_STEP = Measurement("slurmopt_training_step", "The last step that rank 0 reported")
TRAINING_METRIC = Measurement("slurmopt_training_metric", "The last value that rank 0 gave to progress, by name")
RUN_INFO = Measurement("slurmopt_run_info", "Always 1; its labels name the run of the other series of this target")
UPDATED = Measurement("slurmopt_updated_timestamp_seconds", "When these values were written")
OTHERS = (TRAINING_STEP, TRAINING_METRIC, RUN_INFO, UPDATED)


class Sample(NamedTuple):
    """A column of a series, as a value of one kind."""

    measurement: Measurement
    labels: Mapping[str, str]


def sample(column: str) -> Sample | None:
    """What a column of a series measures; None for one that this table lacks."""
    head, _, rest = column.partition(".")
    if head == "node" and rest in NODE:
        return Sample(NODE[rest], {})
    if head in ("net", "ib", "efa"):
        device, _, direction = rest.rpartition(".")
        return Sample(INTERFACE[direction], {"kind": head, "device": device}) if direction in INTERFACE else None
    if head.startswith("gpu") and head[3:].isdigit() and rest in GPU:
        own = GPU[rest]
        return Sample(own, {"gpu": head[3:], **dict([own.label] if own.label else [])})
    if head.startswith("rank") and head[4:].isdigit():
        return _of_rank(head[4:], rest)
    return None


def _of_rank(rank: str, rest: str) -> Sample | None:
    if rest in RANK:
        return Sample(RANK[rest], {"rank": rank})
    if not rest.endswith(_SHARE):
        return None
    activity = rest.removesuffix(_SHARE)
    measurement = Measurement(_ACTIVITY, _ABOUT_ACTIVITY, cloudwatch=SHARES.get(activity), unit="Percent")
    return Sample(measurement, {"rank": rank, "activity": activity})


def prometheus_names() -> set[str]:
    """All names that the sink for Prometheus exposes."""
    tables = (*GPU.values(), *NODE.values(), *INTERFACE.values(), *RANK.values(), *OTHERS)
    return {_ACTIVITY, *(measurement.name for measurement in tables)}


def cloudwatch_names() -> dict[str, bool]:
    """All names of measurements that the sink for CloudWatch sends → whether each GPU can have its own."""
    tables = {**dict.fromkeys(GPU.values(), True), **dict.fromkeys((*NODE.values(), *INTERFACE.values()), False)}
    names = {each.cloudwatch: of_gpu for each, of_gpu in tables.items() if each.cloudwatch is not None}
    of_ranks = [each.cloudwatch for each in RANK.values() if each.cloudwatch is not None]
    return {**names, **dict.fromkeys([*of_ranks, *SHARES.values()], False)}
