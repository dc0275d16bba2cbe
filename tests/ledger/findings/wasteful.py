"""Scenarios with one right answer each: what was wrong with an attempt, and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledger.findings.attempts import (
    GIB,
    Attempt,
    attempt,
    event,
    series_of,
    set_ddp,
    set_gpu,
    set_node,
    set_spent,
    without_gpm,
    without_series,
)

A100 = "NVIDIA A100-SXM4-80GB"
Expected = dict[str, Any]
Made = tuple[list[Attempt], Expected]
SCENARIOS: dict[str, Callable[[], Made]] = {}


def scenario(function: Callable[[], Made]) -> Callable[[], Made]:
    SCENARIOS[function.__name__.replace("_", "-")] = function
    return function


def answer(kind: str, cause: str | None = None, **place: Any) -> Expected:
    return {"kind": kind, "cause": cause, "node": None, "rank": None, "gpu": None, **place}


def slow_input(share: float = 0.35, **options: Any) -> Attempt:
    made = attempt(**options)
    set_spent(made, {"input": share})
    busy = 1 - share
    set_gpu(made, util=98 * busy, sm=0.85 * busy, tensor=0.45 * busy, dram=0.5 * busy, power=400.0)
    return made


@scenario
def decoding_on_few_cpus() -> Made:
    made = slow_input(cpus=4, config={"resources": {"cpus_per_task": 4, "gpus_per_node": 8}})
    set_node(made, cpu=31.0)
    return [made], answer("input-bound", "decoding")


@scenario
def loader_stopped_by_the_cpu_quota() -> Made:
    made = slow_input(gpus=1, cpus=4)
    set_node(made, cpu=3.2, cpu_quota_throttled=0.6)
    return [made], answer("input-bound", "CPU quota")


@scenario
def reading_from_a_slow_disk() -> Made:
    made = slow_input(0.4)
    set_node(made, cpu=6.0, io_read=500e6, disk_read=450e6)
    return [made], answer("input-bound", "storage")


@scenario
def reading_from_a_slow_disk_with_measured_batches() -> Made:
    made = slow_input(0.4)
    set_node(made, cpu=6.0, io_read=500e6, disk_read=450e6)
    costs = {"loader_batches": 1.0, "loader_fetch": 2.0, "loader_fetch_cpu": 0.01, "loader_collate": 0.02}
    for rank in made["ranks"]:
        rank["counted"] |= {name: value * rank["steps"] for name, value in costs.items()}
    return [made], answer("input-bound", "storage")


@scenario
def reading_from_a_network_file_system() -> Made:
    made = slow_input(0.25, nodes=2)
    set_node(made, cpu=7.0, io_read=300e6, disk_read=None)
    return [made], answer("input-bound", "storage")


@scenario
def loader_without_workers() -> Made:
    made = slow_input(0.5, gpus=1, config={"resources": {"cpus_per_task": 12}})
    set_node(made, cpu=1.05, io_read=20e6, disk_read=0.0)
    return [made], answer("input-bound", "few workers")


@scenario
def slow_input_without_a_sampler() -> Made:
    return [without_series(slow_input(0.3, nodes=4))], answer("input-bound")


@scenario
def slow_input_that_neither_reads_nor_computes() -> Made:
    made = slow_input(0.4, gpus=2)
    set_node(made, cpu=1.2, io_read=1e5, disk_read=0.0)
    return [made], answer("input-bound")


@scenario
def cpu_training_whose_loader_decodes() -> Made:
    made = attempt(gpus=0, ranks=1, cpus=4, spent={"input": 0.45})
    set_node(made, cpu=3.9)
    return [made], answer("input-bound", "decoding")


@scenario
def small_kernels_on_an_h100() -> Made:
    made = attempt(gpus=1, step=0.02)
    set_gpu(made, util=90.0, sm=0.18, tensor=0.04, dram=0.08, power=210.0, throttle_power=0.0)
    set_node(made, cpu=1.1)
    return [made], answer("host-bound")


@scenario
def small_kernels_of_eight_ranks() -> Made:
    made = attempt(step=0.05)
    set_gpu(made, util=75.0, sm=0.22, tensor=0.05, dram=0.1, power=230.0, throttle_power=0.0)
    set_node(made, cpu=9.0)
    return [made], answer("host-bound")


@scenario
def gaps_between_kernels_on_an_a100() -> Made:
    made = without_gpm(attempt(gpus=1, card=A100, step=0.03))
    set_gpu(made, util=45.0, power=140.0, throttle_power=0.0)
    set_node(made, cpu=1.05)
    return [made], answer("host-bound")


@scenario
def gradients_over_pcie() -> Made:
    made = attempt()
    set_ddp(made, forward=0.04, backward=0.09, communication=0.15, exposed=0.09)
    set_gpu(made, sm=0.6, tensor=0.25)
    return [made], answer("communication-bound", "node")


@scenario
def gradients_over_a_slow_network() -> Made:
    made = attempt(nodes=4)
    set_ddp(made, forward=0.04, backward=0.09, communication=0.15, exposed=0.08)
    set_gpu(made, sm=0.6, tensor=0.25)
    return [made], answer("communication-bound", "network")


def _over_tcp(fabric: str) -> Attempt:
    made = attempt(nodes=2)
    set_ddp(made, forward=0.04, backward=0.09, communication=0.15, exposed=0.1)
    for series in made["series"]:
        for column in [name for name in series["values"] if name.startswith("ib.")]:
            del series["values"][column]
        series["values"] |= {"net.eth0.tx": 2.4e9, "net.eth0.rx": 2.4e9, f"{fabric}.rx": 0.0, f"{fabric}.tx": 0.0}
    return made


@scenario
def efa_adapters_that_nccl_does_not_use() -> Made:
    return [_over_tcp("efa.rdmap0s6")], answer("communication-bound", "TCP")


@scenario
def infiniband_that_nccl_does_not_use() -> Made:
    return [_over_tcp("ib.mlx5_0")], answer("communication-bound", "TCP")


@scenario
def slow_exchange_with_little_traffic() -> Made:
    made = _over_tcp("ib.mlx5_0")
    for series in made["series"]:
        series["values"] |= {"net.eth0.tx": 8e6, "net.eth0.rx": 8e6, "ib.mlx5_0.rx": 1e5, "ib.mlx5_0.tx": 1e5}
    return [made], answer("communication-bound", "network")


@scenario
def slow_exchange_over_infiniband() -> Made:
    made = _over_tcp("ib.mlx5_0")
    for series in made["series"]:
        series["values"] |= {"net.eth0.tx": 9e7, "net.eth0.rx": 9e7, "ib.mlx5_0.rx": 6e8, "ib.mlx5_0.tx": 6e8}
    return [made], answer("communication-bound", "network")


@scenario
def one_busy_core_and_a_slow_disk() -> Made:
    made = slow_input(0.5, gpus=1)
    set_node(made, cpu=1.05, io_read=90e6, disk_read=80e6)
    return [made], answer("input-bound", "storage")


@scenario
def memory_traffic_without_tensor_cores() -> Made:
    made = attempt(gpus=4)
    set_gpu(made, sm=0.8, tensor=0.05, dram=0.78)
    return [made], answer("memory-bandwidth-bound")


@scenario
def hot_gpu() -> Made:
    made = attempt()
    set_gpu(made, "node1", 3, throttle_thermal=0.4, temperature=88.0, clock_sm=1180.0)
    return [made], answer("throttled", "heat", node="node1", rank=3, gpu=3)


@scenario
def hot_gpu_that_delays_the_others() -> Made:
    made = attempt(nodes=2)
    set_gpu(made, "node2", 5, throttle_hw_thermal=0.5, temperature=91.0, clock_sm=1000.0)
    set_ddp(made, exposed=0.06)
    set_ddp(made, [13], forward=0.075, backward=0.16, exposed=0.004)
    return [made], answer("throttled", "heat", node="node2", rank=13, gpu=5)


@scenario
def power_brake_of_a_node() -> Made:
    made = attempt(nodes=2)
    set_gpu(made, "node2", throttle_brake=0.3, clock_sm=700.0)
    return [made], answer("throttled", "brake", node="node2")


@scenario
def gpu_with_a_lower_power_limit() -> Made:
    made = attempt(nodes=2)
    series_of(made, "node1")["facts"]["gpus"][6]["power_limit"] = 400.0
    set_gpu(made, "node1", 6, throttle_power=0.95, clock_sm=1250.0, power=398.0)
    return [made], answer("throttled", "power", node="node1", rank=6, gpu=6)


@scenario
def slow_rank_on_the_second_node() -> Made:
    made = attempt(nodes=2)
    set_ddp(made, exposed=0.05)
    set_ddp(made, [11], backward=0.16, exposed=0.006)
    return [made], answer("straggler", "backward", node="node2", rank=11, gpu=3)


@scenario
def very_slow_rank_of_two() -> Made:
    made = attempt(gpus=2)
    set_ddp(made, [0], backward=0.06, exposed=0.13)
    set_ddp(made, [1], backward=0.17, exposed=0.008)
    return [made], answer("straggler", "backward", node="node1", rank=1, gpu=1)


@scenario
def rank_whose_loader_is_slow() -> Made:
    made = attempt(nodes=2, ddp=False)
    set_spent(made, {"input": 0.3}, [9])
    return [made], answer("straggler", "input", node="node2", rank=9, gpu=1)


@scenario
def rank_whose_loader_is_slow_under_ddp() -> Made:
    made = attempt()
    set_spent(made, {"input": 0.25}, [2])
    set_ddp(made, exposed=0.07)
    set_ddp(made, [2], exposed=0.008)
    return [made], answer("straggler", "input", node="node1", rank=2, gpu=2)


@scenario
def rank_zero_that_logs_in_each_step() -> Made:
    made = attempt()
    set_ddp(made, exposed=0.055)
    set_ddp(made, [0], exposed=0.005)
    return [made], answer("straggler", "outside", node="node1", rank=0, gpu=0)


@scenario
def slow_node() -> Made:
    made = attempt(nodes=4)
    set_ddp(made, exposed=0.06)
    set_ddp(made, list(range(16, 24)), backward=0.17, exposed=0.008)
    return [made], answer("straggler", "backward", node="node3")


@scenario
def slow_rank_on_cpus_with_gloo() -> Made:
    made = attempt(gpus=0, ranks=2, cpus=2, step=0.06)
    set_ddp(made, [0], forward=0.002, backward=0.0024, exposed=0.05)
    set_ddp(made, [1], forward=0.002, backward=0.0518, exposed=0.004)
    return [made], answer("straggler", "backward", node="node1", rank=1)


@scenario
def half_of_the_gpus_idle() -> Made:
    made = attempt(gpus=8)
    made["ranks"] = made["ranks"][:4]
    for index in range(4, 8):
        set_gpu(made, "node1", index, util=0.0, sm=0.0, tensor=0.0, dram=0.0, power=70.0, memory=5e8, memory_peak=5e8)
    return [made], answer("idle GPUs", "no rank", node="node1")


@scenario
def gpus_without_ranks_and_without_a_sampler() -> Made:
    made = attempt(gpus=4)
    made["ranks"] = made["ranks"][:1]
    return [without_series(made)], answer("idle GPUs", "no rank", node="node1")


@scenario
def idle_node() -> Made:
    made = attempt(nodes=3)
    made["ranks"] = made["ranks"][:16]
    set_gpu(made, "node3", util=0.0, sm=0.0, tensor=0.0, dram=0.0, power=70.0, memory=5e8, memory_peak=5e8)
    set_node(made, "node3", cpu=0.05, io_read=0.0)
    return [made], answer("idle GPUs", "no rank", node="node3")


@scenario
def rank_that_computes_on_the_wrong_gpu() -> Made:
    made = attempt(gpus=2, ddp=False)
    set_gpu(made, "node1", 1, util=0.0, sm=0.0, tensor=0.0, dram=0.0, power=70.0, memory=6e8, memory_peak=6e8)
    return [made], answer("idle GPUs", node="node1", gpu=1)


@scenario
def small_model_on_a_large_card() -> Made:
    made = attempt(gpus=1)
    set_gpu(made, sm=0.42, tensor=0.2, dram=0.3, memory=9.0 * GIB, memory_peak=11.0 * GIB)
    set_node(made, cpu=0.5)
    return [made], answer("unused GPU memory")


@scenario
def small_points_of_a_sweep() -> Made:
    made = attempt(gpus=1)
    made["sweep"] = True
    set_gpu(made, sm=0.4, tensor=0.1, dram=0.3, memory=5.0 * GIB, memory_peak=6.0 * GIB)
    set_node(made, cpu=0.6)
    return [made], answer("unused GPU memory")


@scenario
def allocator_that_holds_what_it_does_not_use() -> Made:
    made = attempt(gpus=1)
    set_gpu(made, sm=0.42, tensor=0.2, dram=0.3, memory=70.0 * GIB, memory_peak=75.0 * GIB)
    made["ranks"][0]["counted"]["memory_allocated_peak"] = 14.0 * GIB
    set_node(made, cpu=0.5)
    return [made], answer("unused GPU memory")


@scenario
def much_more_memory_than_needed() -> Made:
    made = attempt(gpus=1, config={"resources": {"memory": "500GB"}})
    set_node(made, memory=20.0 * GIB, memory_peak=24.0 * GIB, page_cache=10.0 * GIB)
    return [made], answer("unused memory")


def _growing(first: float, last: float, rows: int) -> list[float]:
    return [first + (last - first) * at / (rows - 1) for at in range(rows)]


@scenario
def leak_of_host_memory() -> Made:
    made = attempt(gpus=1, cause=None)
    series_of(made, "node1")["facts"]["memory_limit"] = 100.0 * GIB
    set_node(made, memory=_growing(20 * GIB, 75 * GIB, 120), memory_peak=76.0 * GIB)
    return [made], answer("leak", "memory", node="node1")


@scenario
def leak_that_ends_before_the_training() -> Made:
    made = attempt(nodes=2, cause=None)
    made["ranks"][0]["total_steps"] = 60_000
    set_node(made, "node2", memory=_growing(160 * GIB, 800 * GIB, 120), memory_peak=800.0 * GIB)
    return [made], answer("leak", "memory", node="node2")


@scenario
def leak_in_the_workers_of_a_rank() -> Made:
    made = attempt(gpus=2, cause=None)
    series = series_of(made, "node1")
    series["facts"]["memory_limit"] = 100.0 * GIB
    set_node(made, memory=_growing(20 * GIB, 75 * GIB, 120), memory_peak=76.0 * GIB)
    growing = {
        "rank1.workers_memory": _growing(4 * GIB, 50 * GIB, 120),
        "rank0.memory": _growing(4 * GIB, 5 * GIB, 120),
    }
    series["values"] |= {"rank0.workers_memory": 4.0 * GIB, "rank1.memory": 4.0 * GIB, **growing}
    return [made], answer("leak", "memory", node="node1")


@scenario
def leak_of_gpu_memory() -> Made:
    made = attempt(gpus=2, cause=None)
    set_gpu(made, "node1", 1, memory=_growing(30 * GIB, 62 * GIB, 120), memory_peak=62.0 * GIB)
    return [made], answer("leak", "GPU memory", node="node1", gpu=1)


@scenario
def leak_until_the_kernel_killed_it() -> Made:
    made = attempt(gpus=1, cause="out of memory")
    series_of(made, "node1")["facts"]["memory_limit"] = 64.0 * GIB
    set_node(made, memory=_growing(15 * GIB, 62 * GIB, 120), memory_peak=63.9 * GIB)
    event(made, "node1", "oom_kill", count=1)
    return [made], answer("leak", "memory", node="node1")


@scenario
def killed_for_memory_at_once() -> Made:
    made = attempt(gpus=1, cause="out of memory", config={"resources": {"memory": "64GB"}})
    series_of(made, "node1")["facts"]["memory_limit"] = 64.0 * GIB
    set_node(made, memory=50.0 * GIB, memory_peak=63.9 * GIB)
    event(made, "node1", "oom_kill", count=2)
    return [made], answer("out of memory", node="node1")


@scenario
def steps_that_become_slower() -> Made:
    made = attempt(gpus=1)
    series_of(made, "node1")["values"]["rank0.steps"] = _growing(5.0, 2.6, 120)
    return [made], answer("falling throughput")


@scenario
def steps_that_become_slower_after_a_while() -> Made:
    made = attempt(nodes=2)
    for series in made["series"]:
        for rank in made["ranks"]:
            if rank["node"] == series["node"]:
                series["values"][f"rank{rank['rank']}.steps"] = [4.0] * 70 + [2.4] * 50
    return [made], answer("falling throughput")


def _hung(**hang: Any) -> Attempt:
    made = attempt(cause="hang")
    made["hang"] = {"rank": 6, "node": "node1", "step": 812, "seconds": 620.0, "phase": "running", "silent": [], **hang}
    return made


@scenario
def hang_of_a_stopped_process() -> Made:
    return [_hung(silent=[6])], answer("hang", "silent", node="node1", rank=6)


@scenario
def hang_of_a_loader() -> Made:
    return [_hung(phase="input", rank=2)], answer("hang", "input", node="node1", rank=2)


@scenario
def hang_in_a_collective() -> Made:
    return [_hung()], answer("hang", "collective", node="node1", rank=6)


@scenario
def hang_before_the_first_step() -> Made:
    made = _hung(step=None, phase="waiting")
    for rank in made["ranks"]:
        rank["steps"], rank["spent"] = None, {"starting": 5.0, "waiting": 700.0}
    return [made], answer("hang", "before the first step", node="node1", rank=6)


@scenario
def gpu_that_fell_off_the_bus() -> Made:
    made = attempt(nodes=2, cause="infrastructure")
    event(made, "node2", "xid", gpu=4, xid=79)
    event(made, "node2", "xid", gpu=4, xid=45)
    return [made], answer("XID", "hardware", node="node2", rank=12, gpu=4)


@scenario
def illegal_address_of_a_kernel() -> Made:
    made = attempt(gpus=1, cause="user error")
    event(made, "node1", "xid", gpu=0, xid=31)
    event(made, "node1", "xid", gpu=0, xid=43)
    return [made], answer("XID", "program", node="node1", rank=0, gpu=0)


@scenario
def hang_after_a_broken_gpu() -> Made:
    made = _hung()
    event(made, "node1", "xid", gpu=6, xid=119)
    return [made], answer("XID", "hardware", node="node1", rank=6, gpu=6)


@scenario
def process_of_somebody_else() -> Made:
    made = attempt(gpus=4)
    set_gpu(made, "node1", 2, others=1.0)
    return [made], answer("foreign processes", node="node1", rank=2, gpu=2)


@scenario
def process_of_somebody_else_that_delays_all() -> Made:
    made = attempt(gpus=4)
    set_gpu(made, "node1", 1, others=1.0)
    set_ddp(made, exposed=0.07)
    set_ddp(made, [1], backward=0.2, exposed=0.005)
    return [made], answer("foreign processes", node="node1", rank=1, gpu=1)


@scenario
def shapes_that_change_all_the_time() -> Made:
    made = attempt(gpus=2, spent={"compiling": 0.08})
    for rank in made["ranks"]:
        rank["counted"] |= {"recompiled": 41.0, "graph_breaks": 3.0}
    return [made], answer("recompilation")


@scenario
def saves_too_often() -> Made:
    made = attempt(spent={"checkpoint": 0.18}, config={"checkpoint": {"shared": {"every": "50"}}})
    made["saves"] = 280
    return [made], answer("checkpoint stall")


@scenario
def saves_of_the_training_itself() -> Made:
    made = attempt(gpus=1, spent={"checkpoint": 0.12}, config={"checkpoint": {"shared": {"path": None}}})
    return [made], answer("checkpoint stall")


@scenario
def compilation_in_each_attempt() -> Made:
    limit = {"resources": {"time": "01:00:00"}}
    attempts = [attempt(seconds=3600, startup=1300, number=n, cause="preemption", config=limit) for n in range(4)]
    for made in attempts:
        made["buckets"] = None
    return attempts, answer("start-up", "compile and first steps")


@scenario
def attempts_that_are_too_short() -> Made:
    limit = {"resources": {"time": "00:30:00"}}
    attempts = [attempt(seconds=1800, startup=500, number=n, cause="time limit", config=limit) for n in range(5)]
    for made in attempts:
        for rank in made["ranks"]:
            rank["spent"] |= {"first step": 50.0, "importing": 350.0, "waiting": 50.0}
    return attempts, answer("start-up", "start-up")


@scenario
def work_done_again_after_each_failure() -> Made:
    attempts = []
    for number, cause in enumerate(["node failure", "infrastructure", "finished"]):
        made = attempt(nodes=2, number=number, seconds=7200, cause=cause)
        lost = 0.0 if cause == "finished" else 16 * 1500.0
        made["buckets"] = {"compute": 16 * 6900.0 - lost, "lost": lost, "start-up": 16 * 100.0}
        made["saves"] = 3
        attempts.append(made)
    return attempts, answer("lost work")
