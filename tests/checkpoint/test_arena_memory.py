"""How much memory an arena may take where the job's cgroup cannot be seen, as in a container."""

from __future__ import annotations

import pytest

from slurmopt.checkpoint.snapshot.arena import _slurm_room


@pytest.mark.parametrize(
    ("environ", "most"),
    [
        ({"SLURM_MEM_PER_NODE": "65536"}, 64 << 30),
        ({"SLURM_MEM_PER_NODE": "65536", "LOCAL_WORLD_SIZE": "8"}, 64 << 30),
        ({"SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_ON_NODE": "16", "LOCAL_WORLD_SIZE": "4"}, 32 << 30),
    ],
)
def test_slurms_variables_bound_it(environ: dict[str, str], most: int) -> None:
    (room,) = _slurm_room(environ)
    assert most - (16 << 30) < room < most  # less what the ranks have already


@pytest.mark.parametrize("environ", [{}, {"SLURM_MEM_PER_NODE": "0"}, {"SLURM_MEM_PER_CPU": "2048"}])
def test_without_them_or_with_all_of_the_node_it_is_the_machine_that_bounds_it(environ: dict[str, str]) -> None:
    assert _slurm_room(environ) == []
