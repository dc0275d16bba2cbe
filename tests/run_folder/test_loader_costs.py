"""What the batches of a training cost, by the counts of a rank."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from slurmopt.run_folder.loader_costs import LoaderCosts, in_words, of

SPENT = {"starting": 30.0, "running": 10.0, "input": 3.0, "checkpoint": 50.0}
COUNTED = {
    "steps": 1000.0, "loader_batches": 2000.0, "loader_fetch": 16.0, "loader_fetch_cpu": 4.0, "loader_collate": 2.0,
    "loader_copy": 1.0,
}  # fmt: skip


def test_means_of_a_step_and_of_a_batch() -> None:
    costs = of(SPENT, COUNTED)
    assert costs is not None
    expected = LoaderCosts(
        wait=0.003, step=0.010, batches=2.0, fetch=0.008, fetch_cpu=0.002, collate=0.001, copy=0.0005
    )
    assert asdict(costs) == pytest.approx(asdict(expected))
    assert costs.waits
    assert costs.workers() == 3  # 2 · 9 ms beside 10 ms, and one to spare
    assert in_words(costs) == (
        "a step waits 3 ms and takes 10 ms without; a batch takes a worker 9 ms: 8 ms in the dataset, 2 ms of it on a "
        "CPU, 1 ms in collate; its copy to the GPU 0.5 ms"
    )


@pytest.mark.parametrize(("cpus", "workers"), [(None, 19), (1, 2), (2, 4), (64, 19)])
def test_workers_that_compute_are_no_more_than_there_are_cpus_for(cpus: float | None, workers: int) -> None:
    costs = of(SPENT, COUNTED | {"loader_fetch": 156.0, "loader_fetch_cpu": 80.0, "loader_collate": 20.0})
    assert costs is not None
    assert costs.workers(cpus) == workers


@pytest.mark.parametrize("name", ["steps", "loader_batches"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), 1e300, "many", None, [1], {}])
def test_counts_that_cannot_be_are_no_costs(name: str, value: Any) -> None:
    assert of(SPENT, COUNTED | {name: value}) is None


@pytest.mark.parametrize("value", [None, [], "x", {}, {"input": "long"}, {"input": -1.0}])
def test_times_that_cannot_be_are_no_costs(value: Any) -> None:
    assert of(value, COUNTED) is None
    assert of(SPENT, value) is None


def test_a_wait_too_small_to_matter() -> None:
    costs = of(SPENT | {"input": 0.1}, COUNTED)
    assert costs is not None
    assert not costs.waits
