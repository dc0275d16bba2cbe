"""What array tasks on one machine may use, and how several runners share it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurmopt.backends.array.machine import Machine, gpus, this_machine
from slurmopt.backends.array.needs import Needs, needs_of
from slurmopt.backends.array.slots import Slots
from slurmopt.config.resources import Resources

EIGHT = Machine(cpus=tuple(range(8)), bound=True, memory=16 << 10, gpus=("0", "1"))


@pytest.mark.parametrize(
    ("resources", "at_once"),
    [
        ({}, 8),
        ({"cpus_per_task": 3}, 2),
        ({"cpus_per_task": 99}, 1),
        ({"tasks_per_node": 2, "cpus_per_task": 2}, 2),
        ({"nodes": "2-4", "cpus_per_task": 2}, 2),
        ({"gpus_per_node": 1}, 2),
        ({"gpus_per_node": 2}, 1),
        ({"gpus_per_node": 8}, 1),
        ({"gpus_per_node": 1, "cpus_per_task": 5}, 1),
        ({"memory": "6G"}, 2),
        ({"memory": "1T"}, 1),
        ({"memory_per_cpu": "4G", "cpus_per_task": 2}, 2),
        ({"memory_per_gpu": "12G", "gpus_per_node": 1}, 1),
        ({"exclusive": True}, 1),
    ],
)
def test_so_many_array_tasks_fit_at_a_time(resources: dict[str, Any], at_once: int) -> None:
    assert needs_of(Resources(**resources), EIGHT).at_once(EIGHT) == at_once


def test_without_a_number_of_cpus_a_task_has_the_share_of_its_gpus() -> None:
    assert needs_of(Resources(gpus_per_node=1), EIGHT) == Needs(cpus=4, memory=0, gpus=1)
    no_gpus = Machine(cpus=(0, 1), bound=True, memory=1024, gpus=())
    assert needs_of(Resources(gpus_per_node=1), no_gpus) == Needs(cpus=1, memory=0, gpus=0)


def test_gpus_are_those_of_the_environment_else_of_the_driver(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert gpus({}, tmp_path) == ("0", "1")
    assert gpus({"CUDA_VISIBLE_DEVICES": " 3, GPU-aa"}, tmp_path) == ("3", "GPU-aa")
    assert gpus({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == gpus({"CUDA_VISIBLE_DEVICES": "-1"}, tmp_path) == ()


def test_this_machine_has_cpus_and_memory() -> None:
    here = this_machine({})
    assert here.cpus
    assert here.memory > 100


def test_two_runners_never_give_away_the_same(tmp_path: Path) -> None:
    one, two = (Slots(EIGHT, tmp_path / "slots") for _ in range(2))
    needs = Needs(cpus=3, memory=4 << 10, gpus=1)
    first, second = one.take(needs), two.take(needs)
    assert first is not None
    assert second is not None
    assert not set(first.cpus) & set(second.cpus)
    assert set(first.gpus) | set(second.gpus) == {"0", "1"}
    assert not set(first.memory) & set(second.memory)
    assert one.take(needs) is None
    assert two.take(Needs(cpus=3, memory=0, gpus=0)) is None
    one.give_back(first)
    assert two.take(needs) is not None
    two.give_back(second)


def test_where_nothing_can_be_locked_one_runner_still_counts_its_own() -> None:
    slots = Slots(EIGHT, None)
    places = [slots.take(Needs(cpus=4, memory=0, gpus=0)) for _ in range(3)]
    assert [place is None for place in places] == [False, False, True]
