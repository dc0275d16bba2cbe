"""What ranks agree on: the same weights, when to stop early, and the same bits each time."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import on_ranks
from torch import nn
from torch.distributed.fsdp import fully_shard

from slurmopt.errors import JobError
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.training import EarlyStopping, check_replicas


def compare(run: CurrentRun) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    said = []
    for change in (lambda: model[1].num_batches_tracked.add_(1), lambda: model[2].bias.data[1].add_(1e-7)):
        if run.rank.rank == 2:
            change()  # type: ignore[no-untyped-call]
        try:
            check_replicas(model)
            said.append("alike")
        except JobError as error:
            said.append(str(error))
    fully_shard(model)
    check_replicas(model[0])
    early = EarlyStopping(patience=2)
    values = [3.0, 2.0, 2.5, 1.0, math.nan, 0.5]
    stops = [early.update(value + 10 * run.rank.rank if value != 0.5 else None) for value in values]
    return {"said": said, "stops": stops, "state": early.state_dict()}


def test_ranks_that_differ_are_named_and_all_stop_at_once(tmp_path: Path) -> None:
    outcomes = on_ranks(compare, tmp_path / "run", nodes=["a"] * 3)
    assert [outcome.error for outcome in outcomes] == [None] * 3
    for outcome in outcomes:
        assert outcome.value["said"] == [
            "alike",
            "the weights of the ranks differ: 2.bias on rank 2, from that of most ranks",
        ]
        assert outcome.value["stops"] == [False] * 5 + [True]
        assert outcome.value["state"] == {"best": 1.0, "since": 2}


def compare_kinds(run: CurrentRun) -> list[str]:
    """What differs on rank 1: constants, the order, signs, one bit behind the first million."""
    torch.manual_seed(0)
    said = []
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        start = torch.randn(6).to(dtype)
        changed = (torch.zeros(6), start.flip(0), start * torch.tensor([-1, -1, 1, 1, 1, 1]))
        for one, other in ((torch.ones(6), changed[0]), (start, changed[1]), (start, changed[2]), (start, start)):
            model = nn.ParameterDict({"w": (other if run.rank.rank == 1 else one).to(dtype)})
            said.append(_said(model))
    large = torch.zeros(3_000_000)
    large[2_500_000] = 1e-45 * run.rank.rank
    return [*said, _said(nn.ParameterDict({"w": large}))]


def _said(model: nn.Module) -> str:
    try:
        check_replicas(model)
    except JobError:
        return "differ"
    return "alike"


def test_weights_that_a_sum_or_xor_would_not_tell_apart_are_told_apart(tmp_path: Path) -> None:
    for outcome in on_ranks(compare_kinds, tmp_path / "run", nodes=["a"] * 2):
        assert outcome.error is None
        assert outcome.value == [*(["differ"] * 3 + ["alike"]) * 3, "differ"]


def test_early_stopping_goes_on_after_a_restart_and_counts_only_what_is_better() -> None:
    early = EarlyStopping(patience=3, mode="max", least=0.1)
    assert [early.update(value) for value in (0.5, 0.55, 0.7, 0.75)] == [False] * 4
    again = EarlyStopping(patience=3, mode="max", least=0.1)
    again.load_state_dict(early.state_dict())
    assert (again.best, again.since) == (0.7, 1)
    assert [again.update(value) for value in (0.71, torch.tensor(0.79))] == [False, True]


@pytest.mark.parametrize(
    "words",
    [
        {"patience": 0},
        {"patience": 1, "mode": "best"},
        {"patience": 1, "least": math.nan},
        {"patience": 1, "least": "0"},
    ],
)
def test_early_stopping_refuses_what_is_not_valid(words: dict[str, Any]) -> None:
    with pytest.raises(JobError, match="; valid: "):
        EarlyStopping(**words)


PROGRAM = """
import random
import torch
from slurmopt.training import deterministic
deterministic(7)
print(random.random(), torch.rand(3).tolist(), torch.are_deterministic_algorithms_enabled())
import numpy, os
print(numpy.random.rand(), os.environ["CUBLAS_WORKSPACE_CONFIG"])
"""


def test_one_switch_gives_the_same_numbers_in_each_process() -> None:
    first, second = (
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first == second
    assert "True" in first
    assert first.strip().endswith(":4096:8")
