"""Scenarios in which nothing is wrong: no finding may come of them, however odd they look."""

from __future__ import annotations

import math
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
from ledger.findings.wasteful import A100

SCENARIOS: dict[str, Callable[[], list[Attempt]]] = {}


def scenario(function: Callable[[], list[Attempt]]) -> Callable[[], list[Attempt]]:
    SCENARIOS["healthy-" + function.__name__.replace("_", "-")] = function
    return function


@scenario
def eight_gpus() -> list[Attempt]:
    return [attempt()]


@scenario
def single_gpu() -> list[Attempt]:
    return [attempt(gpus=1)]


@scenario
def four_nodes() -> list[Attempt]:
    return [attempt(nodes=4)]


@scenario
def cpus_only() -> list[Attempt]:
    made = attempt(gpus=0, ranks=2, cpus=4)
    set_node(made, cpu=7.8)
    return [made]


@scenario
def mig_without_signals() -> list[Attempt]:
    made = without_gpm(attempt(gpus=1), "not allowed")
    series_of(made, "node1")["facts"]["gpus"][0] |= {"mig": True, "memory": 20 * GIB}
    nothing = ("util", "power", "clock_sm", "temperature", "others")
    throttle = ("throttle_power", "throttle_thermal", "throttle_hw_thermal", "throttle_brake")
    set_gpu(made, **dict.fromkeys((*nothing, *throttle)), memory=6.0 * GIB, memory_peak=7.0 * GIB)
    return [made]


@scenario
def one_minute() -> list[Attempt]:
    made = attempt(gpus=1, seconds=62, startup=28)
    set_gpu(made, util=55.0, sm=0.3, tensor=0.1, dram=0.2, memory_peak=20.0 * GIB)
    return [made]


@scenario
def a100_without_gpm() -> list[Attempt]:
    return [without_gpm(attempt(card=A100))]


@scenario
def elastic_attempts() -> list[Attempt]:
    return [attempt(nodes=4, cause="preemption"), attempt(nodes=2, number=1, step=0.45)]


@scenario
def long_warm_up_of_a_short_run() -> list[Attempt]:
    made = attempt(gpus=1, seconds=400, startup=220)
    made["ranks"][0]["spent"] |= {"input": 30.0}  # the loader starts its workers before the first step
    return [made]


@scenario
def large_page_cache() -> list[Attempt]:
    made = attempt(config={"resources": {"memory": "1000GB"}})
    set_node(made, memory=150.0 * GIB, memory_peak=160.0 * GIB, page_cache=780.0 * GIB, io_read=2e9, disk_read=5e6)
    return [made]


@scenario
def page_cache_that_fills() -> list[Attempt]:
    made = attempt(gpus=1, cause=None)
    set_node(made, page_cache=[at * 4.0 * GIB for at in range(120)], memory_peak=40.0 * GIB)
    return [made]


@scenario
def long_evaluations() -> list[Attempt]:
    made = attempt()
    set_spent(made, {"evaluation": 0.3})
    training = [at % 10 < 7 for at in range(120)]  # the last 90 s of each five minutes are an evaluation
    values = series_of(made, "node1")["values"]
    for rank in range(8):
        values[f"rank{rank}.running.share"] = [0.985 if it_is else 0.0 for it_is in training]
        values[f"rank{rank}.evaluation.share"] = [0.0 if it_is else 1.0 for it_is in training]
        values[f"rank{rank}.input.share"] = [0.01 if it_is else 0.0 for it_is in training]
        values[f"rank{rank}.steps"] = [4.0 if it_is else 0.0 for it_is in training]
        for column, busy, idle in (("sm", 0.85, 0.1), ("tensor", 0.45, 0.02), ("util", 98.0, 25.0)):
            values[f"gpu{rank}.{column}"] = [busy if it_is else idle for it_is in training]
    return [made]


@scenario
def all_gpus_at_their_power_limit() -> list[Attempt]:
    made = attempt(nodes=2)
    set_gpu(made, power=698.0, throttle_power=1.0, clock_sm=1450.0, temperature=78.0)
    return [made]


@scenario
def buffers_of_the_first_save() -> list[Attempt]:
    made = attempt(gpus=1, cause=None)
    series_of(made, "node1")["facts"]["memory_limit"] = 150.0 * GIB
    set_node(made, memory=[30.0 * GIB] * 50 + [75.0 * GIB] * 25 + [110.0 * GIB] * 45, memory_peak=112.0 * GIB)
    return [made]


@scenario
def memory_that_rises_and_falls() -> list[Attempt]:
    made = attempt(gpus=1, cause=None)
    series_of(made, "node1")["facts"]["memory_limit"] = 100.0 * GIB
    set_node(made, memory=[(40 + 25 * math.sin(at / 5)) * GIB for at in range(120)], memory_peak=66.0 * GIB)
    return [made]


@scenario
def small_leak_of_a_training_that_ends_before() -> list[Attempt]:
    made = attempt(gpus=1, cause=None)
    made["ranks"][0]["total_steps"] = 15_000
    set_node(made, memory=[(100 + at) * GIB for at in range(120)], memory_peak=220.0 * GIB)
    return [made]


@scenario
def command_without_steps() -> list[Attempt]:
    made = attempt(gpus=8, ranks=1)
    rank = made["ranks"][0]
    rank |= {"gpus": 8.0, "steps": None, "counted": {}, "devices": [f"GPU-node1-{index}" for index in range(8)]}
    rank["spent"] = {"starting": 5.0, "first step": 3595.0}
    values = series_of(made, "node1")["values"]
    for column in [name for name in values if name.startswith("rank0.")]:
        del values[column]
    return [made]


@scenario
def sharded_without_ddp() -> list[Attempt]:
    return [attempt(nodes=2, ddp=False)]


@scenario
def points_that_share_a_gpu() -> list[Attempt]:
    made = attempt(gpus=1, ranks=4, ddp=False, cpus=3)
    for rank in made["ranks"]:
        rank |= {"gpus": 0.25, "devices": ["GPU-node1-0"]}
    set_node(made, cpu=4.2)
    return [made]


@scenario
def preempted_twice() -> list[Attempt]:
    attempts = []
    for number, seconds in enumerate((5000.0, 9000.0, 20000.0)):
        made = attempt(number=number, seconds=seconds, cause="finished" if number == 2 else "preemption")
        lost = 0.0 if number == 2 else 8 * 90.0
        made["buckets"] = {"compute": 8 * (seconds - 100) - lost, "lost": lost, "start-up": 800.0}
        attempts.append(made)
    return attempts


@scenario
def without_a_sampler() -> list[Attempt]:
    return [without_series(attempt(nodes=2))]


@scenario
def killed_with_an_xid_of_the_kill() -> list[Attempt]:
    made = attempt(cause="time limit")
    event(made, "node1", "xid", gpu=0, xid=45)
    return [made]


@scenario
def rate_that_varies() -> list[Attempt]:
    made = attempt(gpus=1)
    series_of(made, "node1")["values"]["rank0.steps"] = [4 + 0.8 * math.sin(at / 3) for at in range(120)]
    return [made]


@scenario
def slow_first_attempt_then_a_faster_one() -> list[Attempt]:
    return [attempt(gpus=1, step=0.5, cause="asked"), attempt(gpus=1, number=1)]


@scenario
def process_of_the_job_before() -> list[Attempt]:
    made = attempt(gpus=1)
    set_gpu(made, others=[1.0] * 3 + [0.0] * 117)
    return [made]


@scenario
def gpus_of_another_job_in_sight() -> list[Attempt]:
    made = attempt(gpus=8)
    made["record"]["gpus"] = {"node1": 4.0}
    made["ranks"] = made["ranks"][:4]
    for index in range(4, 8):
        set_gpu(made, "node1", index, util=0.0, sm=0.0, tensor=0.0, dram=0.0, throttle_thermal=0.5, others=1.0)
    return [made]


@scenario
def gpus_of_another_job_in_sight_of_a_command() -> list[Attempt]:
    (made,) = gpus_of_another_job_in_sight()
    for rank in made["ranks"]:
        rank["devices"] = []
    return [made]


@scenario
def first_minutes() -> list[Attempt]:
    return [attempt(seconds=900, startup=500, cause=None)]


@scenario
def little_memory_at_full_speed() -> list[Attempt]:
    made: Any = attempt(gpus=1)
    set_gpu(made, memory=8.0 * GIB, memory_peak=9.0 * GIB)
    return [made]


@scenario
def little_waiting_for_input() -> list[Attempt]:
    made = attempt(spent={"input": 0.08})
    set_node(made, cpu=90.0, cpu_quota_throttled=0.05)
    return [made]


@scenario
def little_exposed_communication() -> list[Attempt]:
    made = attempt(nodes=2)
    set_ddp(made, forward=0.05, backward=0.11, communication=0.1, exposed=0.03)
    return [made]


@scenario
def medium_kernels() -> list[Attempt]:
    made = attempt(gpus=1)
    set_gpu(made, util=92.0, sm=0.52, tensor=0.2, dram=0.2, throttle_power=0.0)
    set_node(made, cpu=1.1)
    return [made]


@scenario
def medium_kernels_on_an_a100() -> list[Attempt]:
    made = without_gpm(attempt(gpus=1, card=A100))
    set_gpu(made, util=82.0)
    set_node(made, cpu=1.1)
    return [made]


@scenario
def small_kernels_that_move_much_memory() -> list[Attempt]:
    made = attempt(gpus=1)
    set_gpu(made, util=92.0, sm=0.3, tensor=0.2, dram=0.55, throttle_power=0.0)
    set_node(made, cpu=1.1)
    return [made]


@scenario
def busy_memory_and_tensor_cores() -> list[Attempt]:
    made = attempt(gpus=1)
    set_gpu(made, sm=0.8, tensor=0.3, dram=0.78)
    return [made]


@scenario
def warm_gpu() -> list[Attempt]:
    made = attempt()
    set_gpu(made, "node1", 3, throttle_thermal=0.03, throttle_brake=0.004, temperature=84.0, clock_sm=1660.0)
    return [made]


@scenario
def gpu_that_is_a_little_slower() -> list[Attempt]:
    made = attempt(nodes=2)
    set_gpu(made, "node1", 6, throttle_power=0.9, clock_sm=1640.0)
    set_ddp(made, [6], backward=0.12, exposed=0.006)
    return [made]


@scenario
def ranks_with_unequal_work() -> list[Attempt]:
    made = attempt()
    for rank in range(8):
        set_ddp(made, [rank], backward=0.1 + 0.003 * rank, exposed=0.028 - 0.003 * rank)
    return [made]


@scenario
def steps_that_become_a_little_slower() -> list[Attempt]:
    made = attempt(gpus=1)
    series_of(made, "node1")["values"]["rank0.steps"] = [4.0 - 0.5 * at / 119 for at in range(120)]
    return [made]


@scenario
def noisy_rate() -> list[Attempt]:
    made = attempt(gpus=1)
    rates = [2.0 + 2.0 * ((at * 7919) % 101) / 100 for at in range(120)]
    series_of(made, "node1")["values"]["rank0.steps"] = [rate * (1 - 0.2 * at / 119) for at, rate in enumerate(rates)]
    return [made]


@scenario
def saves_that_block_a_little() -> list[Attempt]:
    made = attempt(spent={"checkpoint": 0.035}, config={"checkpoint": {"shared": {"every": "50"}}})
    made["saves"] = 40
    return [made]


@scenario
def start_up_of_some_minutes() -> list[Attempt]:
    return [attempt(seconds=3600, startup=400)]


@scenario
def short_start_up_of_a_short_run() -> list[Attempt]:
    return [attempt(seconds=900, startup=240)]


@scenario
def memory_with_some_room() -> list[Attempt]:
    made = attempt(gpus=1, config={"resources": {"memory": "200GB"}})
    set_node(made, memory=40.0 * GIB, memory_peak=45.0 * GIB, page_cache=20.0 * GIB)
    set_gpu(made, sm=0.45, tensor=0.2, memory=48.0 * GIB, memory_peak=50.0 * GIB)
    set_node(made, cpu=0.5)
    return [made]


@scenario
def memory_that_grows_a_little() -> list[Attempt]:
    made = attempt(gpus=1, cause=None)
    set_node(made, memory=[(60 + at / 60) * GIB for at in range(120)], memory_peak=63.0 * GIB)
    return [made]


@scenario
def lost_minutes() -> list[Attempt]:
    made = attempt(seconds=36000, cause="node failure")
    made["buckets"] = {"compute": 8 * 34900.0, "lost": 8 * 1000.0, "start-up": 800.0}
    return [made, attempt(number=1, seconds=7200)]


@scenario
def small_card_half_full() -> list[Attempt]:
    made = attempt(gpus=1)
    series_of(made, "node1")["facts"]["gpus"][0]["memory"] = 24.0 * GIB
    set_gpu(made, sm=0.45, tensor=0.2, memory=9.0 * GIB, memory_peak=10.0 * GIB)
    set_node(made, cpu=0.5)
    return [made]


@scenario
def more_evaluation_than_training() -> list[Attempt]:
    made = attempt(gpus=4)
    set_spent(made, {"evaluation": 0.6})
    training = [at % 5 < 2 for at in range(120)]
    values = series_of(made, "node1")["values"]
    for rank in range(4):
        values[f"rank{rank}.running.share"] = [0.985 if it_is else 0.0 for it_is in training]
        values[f"rank{rank}.evaluation.share"] = [0.0 if it_is else 1.0 for it_is in training]
        values[f"rank{rank}.input.share"] = [0.01 if it_is else 0.0 for it_is in training]
        values[f"rank{rank}.steps"] = [4.0 if it_is else 0.0 for it_is in training]
        for column, busy, idle in (("sm", 0.85, 0.2), ("tensor", 0.45, 0.05), ("util", 98.0, 40.0)):
            values[f"gpu{rank}.{column}"] = [busy if it_is else idle for it_is in training]
    values["node.cpu"] = [6.0 if it_is else 46.0 for it_is in training]
    return [made]


@scenario
def compilation_of_some_minutes() -> list[Attempt]:
    made = attempt(gpus=8, seconds=3600, startup=420)
    rates = [1.5 if at < 18 else 4.0 for at in range(120)]  # shapes that are new are compiled during the first minutes
    series_of(made, "node1")["values"]["rank0.steps"] = rates
    set_node(made, memory=[30.0 * GIB if at < 18 else 160.0 * GIB for at in range(120)])
    return [made]


@scenario
def gradient_accumulation() -> list[Attempt]:
    made = attempt(step=8.0)  # 16 backwards, and DDP's timings are of the last one
    set_ddp(made, forward=0.1, backward=0.25, exposed=0.09)
    return [made]


@scenario
def warm_up_of_the_learning_rate() -> list[Attempt]:
    made = attempt(cause=None)
    noise = [0.1 * math.sin(7 * at) for at in range(120)]
    series_of(made, "node1")["values"]["rank0.steps"] = [
        4.0 + noise[at] - (0.3 if at < 30 else 0.0) for at in range(120)
    ]
    set_gpu(made, memory=[50.0 * GIB if at < 4 else 62.0 * GIB for at in range(120)])
    return [made]


@scenario
def cpus_only_with_evaluations() -> list[Attempt]:
    made = attempt(gpus=0, ranks=8, cpus=4, step=0.8, config={"resources": {"memory": "64GB"}})
    set_spent(made, {"evaluation": 0.2, "input": 0.04})
    set_node(made, cpu=29.0, memory=24.0 * GIB, memory_peak=26.0 * GIB)
    return [made]


@scenario
def debugging_on_one_gpu() -> list[Attempt]:
    made = attempt(gpus=1, seconds=540, startup=40, step=10.0, config={"resources": {"memory": "64GB"}})
    stops = [at % 6 == 5 for at in range(18)]  # the rest of the time somebody reads at a breakpoint
    values = series_of(made, "node1")["values"]
    values["rank0.steps"] = [0.6 if it_is else 0.0 for it_is in stops]
    set_node(made, cpu=0.2, memory=5.0 * GIB, memory_peak=6.0 * GIB, io_read=0.0, disk_read=0.0)
    set_gpu(made, util=[20.0 if it_is else 0.0 for it_is in stops], sm=0.02, tensor=0.01, dram=0.01,
            memory=3.0 * GIB, memory_peak=4.0 * GIB, clock_sm=345.0, power=80.0)  # fmt: skip
    return [made]


@scenario
def point_of_a_pack_with_evaluations() -> list[Attempt]:
    made = attempt(gpus=1, ranks=1, cpus=4, config={"sweep": {"side_by_side": 4}})
    made["sweep"] = True
    made["ranks"][0] |= {"gpus": 0.25}
    set_spent(made, {"evaluation": 0.25})
    set_gpu(made, sm=0.6, tensor=0.2, dram=0.4, others=0.0, memory=36.0 * GIB, memory_peak=50.0 * GIB)
    return [made]


@scenario
def elastic_restarts_after_failures() -> list[Attempt]:
    attempts = []
    for number, nodes in enumerate((4, 3, 2, 4)):
        last = number == 3
        made = attempt(nodes=nodes, number=number, seconds=7200.0 * (nodes - 1), step=1.0 / nodes,
                       cause="finished" if last else "node failure")  # fmt: skip
        gpus, seconds = 8.0 * nodes, 7200.0 * (nodes - 1)
        lost = 0.0 if last else gpus * 120.0
        made["buckets"] = {"compute": gpus * (seconds - 100) - lost, "lost": lost, "start-up": gpus * 100.0}
        attempts.append(made)
    return attempts


@scenario
def batches_that_grow() -> list[Attempt]:
    made = attempt(gpus=1)
    values = series_of(made, "node1")["values"]
    values["rank0.steps"] = [8.0 if at < 40 else 4.0 for at in range(120)]
    values["rank0.samples"] = [256.0 if at < 40 else 260.0 for at in range(120)]
    return [made]


@scenario
def long_save_at_the_end_of_a_short_run() -> list[Attempt]:
    made = attempt(seconds=1400, spent={"checkpoint": 0.055}, config={"checkpoint": {"shared": {"every": "auto"}}})
    made["saves"] = 1
    return [made]


@scenario
def rollouts_of_a_simulator() -> list[Attempt]:
    made = attempt(gpus=1, spent={"rollout": 0.6})
    training = [at % 5 < 2 for at in range(120)]
    values = series_of(made, "node1")["values"]
    for column, busy, idle in (
        ("rank0.running.share", 0.985, 0.0), ("rank0.input.share", 0.01, 0.0), ("rank0.steps", 4.0, 0.0),
        ("rank0.rollout.share", 0.0, 1.0), ("gpu0.sm", 0.85, 0.05), ("gpu0.tensor", 0.45, 0.0),
        ("gpu0.util", 98.0, 9.0),
    ):  # fmt: skip
        values[column] = [busy if it_is else idle for it_is in training]
    return [made]


@scenario
def first_epoch_before_the_data_is_in_the_cache() -> list[Attempt]:
    made = attempt(gpus=1, spent={"input": 0.06})
    series_of(made, "node1")["values"] |= {
        "rank0.input.share": [0.5] * 13 + [0.01] * 107,
        "rank0.running.share": [0.49] * 13 + [0.98] * 107,
        "rank0.steps": [2.0] * 13 + [4.2] * 107,
    }
    return [made]


@scenario
def steps_that_are_compiled_anew_at_first() -> list[Attempt]:
    made = attempt(gpus=1)
    series_of(made, "node1")["values"]["rank0.steps"] = [1.0] * 25 + [4.0] * 95
    return [made]


@scenario
def last_attempt_of_some_seconds() -> list[Attempt]:
    return [attempt(seconds=14400, cause="time limit"), attempt(number=1, seconds=115)]


@scenario
def nodes_of_two_kinds() -> list[Attempt]:
    made = attempt(nodes=2)
    set_gpu(made, "node2", clock_sm=1500.0, throttle_power=0.9)
    for fact in series_of(made, "node2")["facts"]["gpus"]:
        fact |= {"power_limit": 600.0, "name": "NVIDIA H200"}
    return [made]


@scenario
def short_attempts_in_a_queue_of_a_quarter_of_an_hour() -> list[Attempt]:
    return [attempt(number=number, gpus=1, seconds=900, startup=120, cause="time limit") for number in range(6)]
