"""What the heartbeats of a node's ranks say between two readings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from job.monitor.laid_out import here

from slurmopt.job.monitor.here import Here
from slurmopt.job.monitor.sources.node_ranks import NodeRanks
from slurmopt.job.monitor.sources.rank_memory import RankMemory
from slurmopt.job.monitor.sources.ranks import RanksSource
from slurmopt.run_folder.access.files import replace_json

START = 1_800_000_000.0


def beat(place: Here, rank: int, at: float, **fields: Any) -> None:
    path = place.run.heartbeat(place.attempt, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {"rank": rank, "world_size": 4, "node": "n1", "pid": 1000 + rank, "started": START, "time": START + at}
    replace_json(path, {**said, **fields})


def opened(place: Here) -> RanksSource:
    return RanksSource(NodeRanks(place), RankMemory(place.roots.proc))


@pytest.fixture
def place(tmp_path: Path) -> Here:
    return here(tmp_path, ranks=(2, 3))


def test_shares_add_up_to_one_and_counters_are_rates(place: Here) -> None:
    source = opened(place)
    spent = {"starting": 5.0, "running": 10.0, "input": 2.0}
    beat(place, 2, 17, step=100, spent=spent, counted={"tokens": 1000.0, "ddp_sampled": 1, "ddp_backward": 0.5})
    first = {"rank2.step": 100, "rank2.tokens": 1000 / 17, "rank2.ddp_backward": 0.5}
    first |= {f"rank2.{name}.share": seconds / 17 for name, seconds in spent.items()}
    assert source.read() == pytest.approx(first), "since the rank has started"
    later = {"starting": 5.0, "running": 16.0, "input": 5.0, "checkpoint": 1.0}
    counted = {"tokens": 6000.0, "steps": 70.0, "ddp_sampled": 3, "ddp_backward": 0.7, "ddp_exposed": 0.4}
    counted |= {"loader_batches": 140.0, "loader_fetch": 2.8, "loader_collate": 1.4}
    beat(place, 2, 27, step=150, spent=later, counted=counted)
    assert source.read() == pytest.approx(
        {
            "rank2.step": 150,
            "rank2.starting.share": 0,
            "rank2.running.share": 0.6,
            "rank2.input.share": 0.3,
            "rank2.checkpoint.share": 0.1,
            "rank2.tokens": 500,
            "rank2.steps": 7,
            "rank2.ddp_backward": 0.1,
            "rank2.ddp_exposed": 0.2,
            "rank2.loader_fetch": 0.02,
            "rank2.loader_collate": 0.01,
        }
    )


def test_steps_count_where_the_rank_counts_none_itself(place: Here) -> None:
    source = opened(place)
    beat(place, 2, 10, step=100)
    beat(place, 3, 10)
    source.read()
    beat(place, 2, 20, step=140)
    beat(place, 3, 20)
    assert source.read() == {"rank2.step": 140, "rank2.steps": 4}


def test_a_rank_that_is_silent_has_no_rate_rather_than_zero(place: Here) -> None:
    source = opened(place)
    beat(place, 2, 10, step=100)
    source.read()
    assert source.read() == {"rank2.step": 100}
    beat(place, 2, 20, step=100)
    assert source.read()["rank2.steps"] == 0, "it lives, and makes no step"


def test_ranks_of_other_nodes_and_heartbeats_of_nonsense_do_not_count(place: Here) -> None:
    source = opened(place)
    beat(place, 2, 10, step=1, node="n2")
    beat(place, 3, 10, step="x", spent=[1], counted={"steps": "many", "tokens": True}, pid="init")
    assert source.read() == {}
    beat(place, 3, 20, step=-5, spent={"a": float("nan"), "b": 1.0}, counted=None)
    values = source.read()
    assert values["rank3.b.share"] == 1
    place.run.heartbeat(0, 3).write_text("{")
    assert source.read() == {"rank3.step": -5}
    assert source._ranks.pids() == [place.pid, 1003]


def test_a_process_of_a_name_that_starts_again_does_not_count_backwards(place: Here) -> None:
    source = opened(place)
    beat(place, 2, 10, step=100, spent={"running": 50.0}, counted={"tokens": 900.0})
    source.read()
    beat(place, 2, 20, step=5, spent={"running": 5.0}, counted={"tokens": 9.0})
    assert source.read() == {"rank2.step": 5}
