"""Ranks on several nodes, each node with a disk of its own: here, a folder of its own for each name of a node."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import Outcome, on_ranks

from slurmopt.checkpoint import Checkpointer, rng_state
from slurmopt.checkpoint.writer import writer_start
from slurmopt.job.worker.current_run import CurrentRun

Journal = Callable[[str], list[dict[str, Any]]]
ELEMENTS = 4_500_000  # 18 MB: each rank writes a share


def values(outcomes: list[Outcome]) -> list[Any]:
    for outcome in outcomes:
        assert outcome.error is None, outcome.error + outcome.log
    return [outcome.value for outcome in outcomes]


def _config(run: CurrentRun, disks: Path, shared_every: int | None) -> dict[str, Any]:
    shared = {"path": None} if shared_every is None else {"every": shared_every, "keep": 9}
    return {"scratch": {"path": str(disks / run.rank.node), "every": 1}, "shared": shared, "durable": "scratch"}


def _state(step: int) -> dict[str, Any]:
    return {"w": torch.full((ELEMENTS,), float(step)), "frozen": torch.arange(2_200_000), "note": step}


def _save(run: CurrentRun, disks: Path, shared_every: int | None, steps: int, die: bool = False) -> None:
    saving = Checkpointer(_config(run, disks, shared_every), run)
    first = saving.restore(_state(0))
    for step in range(first + 1, first + steps + 1):
        assert saving.save(step, {**_state(step), "rng": rng_state()})
        assert saving.wait() or die  # the other rank may be gone before its word
    if die:
        os.killpg(0, signal.SIGKILL)
    saving.close()


def _restore(run: CurrentRun, disks: Path, shared_every: int | None) -> int:
    state = {**_state(77), "rng": rng_state()}
    state["frozen"].zero_()
    with Checkpointer(_config(run, disks, shared_every), run) as saving:
        step = saving.restore(state)
        assert torch.equal(state["w"], torch.full((ELEMENTS,), float(step)))
        assert torch.equal(state["frozen"], torch.arange(2_200_000))
        assert state["note"] == step
        assert saving.save(step + 1, {**_state(step + 1), "rng": rng_state()})
        assert saving.wait()
    return step


def payloads(disks: Path, node: str, step: int) -> list[str]:
    return sorted(path.name for path in (disks / node).glob(f"demo/0001/step-{step:08d}/*/*.bin"))


def test_each_node_keeps_what_its_ranks_wrote_and_all_of_it_comes_back(
    folder: Path, tmp_path: Path, journal: Journal
) -> None:
    disks = tmp_path / "disks"
    nodes = ["a", "a", "b"]
    values(on_ranks(_save, folder, disks, None, 2, nodes=nodes))
    assert payloads(disks, "a", 2) == ["rank-00000.bin", "rank-00001.bin"]
    assert payloads(disks, "b", 2) == ["rank-00002.bin"]
    assert values(on_ranks(_restore, folder, disks, None, nodes=nodes, attempt=1)) == [2, 2, 2]
    assert [event["tier"] for event in journal("restored")] == ["scratch"]
    assert values(on_ranks(_restore, folder, disks, None, nodes=["b", "a"], attempt=2)) == [3, 3], (
        "and in another order"
    )


def test_what_lies_on_one_node_comes_to_one_that_is_new(folder: Path, tmp_path: Path) -> None:
    """A node that was replaced has an empty disk; here nothing else was on the old one."""
    disks = tmp_path / "disks"
    values(on_ranks(_save, folder, disks, None, 1, nodes=["a", "a"]))
    assert values(on_ranks(_restore, folder, disks, None, nodes=["new", "a"], attempt=1)) == [1, 1]
    assert values(on_ranks(_restore, folder, disks, None, nodes=["a", "new", "other"], attempt=2)) == [2, 2, 2]


def test_a_node_that_is_lost_sends_all_back_to_shared(folder: Path, tmp_path: Path, journal: Journal) -> None:
    disks = tmp_path / "disks"
    values(on_ranks(_save, folder, disks, 3, 5, nodes=["a", "b"]))
    shutil.rmtree(disks / "b")
    outcomes = on_ranks(_restore, folder, disks, 3, nodes=["a", "c"], attempt=1)
    assert values(outcomes) == [3, 3]
    assert [(event["step"], event["tier"]) for event in journal("restored")] == [(3, "shared")]
    assert journal("checkpoint-damaged") == [], "another job may still have that node"
    told = [line for line in outcomes[0].log.splitlines() if "is on no node of this job" in line]
    assert {"00000005", "00000004"} <= {line.partition("step-")[2][:8] for line in told}, told


@pytest.mark.parametrize("nodes", [["a", "b"], ["b", "a", "c"]])
def test_what_only_the_nodes_had_goes_to_shared_after_a_crash(folder: Path, tmp_path: Path, nodes: list[str]) -> None:
    disks = tmp_path / "disks"
    outcomes = on_ranks(_save, folder, disks, 3, 5, True, nodes=["a", "b"])
    assert [outcome.status for outcome in outcomes] == [-signal.SIGKILL] * 2, outcomes[0].error
    assert values(on_ranks(_save, folder, disks, 2, 0, nodes=nodes, attempt=1)) == [None] * len(nodes)
    shutil.rmtree(disks)
    assert values(on_ranks(_restore, folder, disks, 2, nodes=["a"], attempt=2)) == [5]


def test_old_checkpoints_go_from_each_node(folder: Path, tmp_path: Path) -> None:
    disks = tmp_path / "disks"
    values(on_ranks(_save, folder, disks, None, 4, nodes=["a", "b"]))
    for node in "ab":
        steps = [step for step in range(1, 5) if payloads(disks, node, step)]
        assert steps == [1, 3, 4], "the last two, and the first, which holds what is frozen"


def test_two_ranks_that_share_a_node_and_its_disk_save_to_it_once(folder: Path, tmp_path: Path) -> None:
    disks = tmp_path / "disks"
    values(on_ranks(_save, folder, disks, None, 1, nodes=["a", "a"]))
    manifests = list((disks / "a").glob("demo/0001/step-*/*/manifest.json"))
    assert len(manifests) == 1


def _not_mounted(run: CurrentRun, disks: Path) -> None:
    writer_start._VISIBLE_SECONDS = 2.0
    Checkpointer({"shared": {"path": str(disks / run.rank.node)}}, run)


def test_a_shared_folder_that_is_not_the_same_on_all_nodes_is_found_before_the_first_step(
    folder: Path, tmp_path: Path
) -> None:
    """Simulated: the path of each node leads elsewhere, as where one node has not mounted it."""
    for outcome in on_ranks(_not_mounted, folder, tmp_path / "mounts", nodes=["one", "one", "two"]):
        assert "mounts/two" in outcome.last_line, outcome.error
        assert "on two is not the folder that rank 0 writes to; is it mounted on all nodes?" in outcome.last_line
