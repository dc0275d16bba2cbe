"""Traces of a real training on two ranks: the shares of time are those of an independent count, and the slow rank is
named."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest
from checkpoint.ranks import on_ranks
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.profiling.analysis import Profile, analyse
from slurmopt.profiling.breakdown import COMPUTE, EXPOSED
from slurmopt.profiling.sentences import sentences
from slurmopt.profiling.steps import steps_of
from slurmopt.runs.profiling.traces import read_file

STEPS, SLOW, NAP = 8, 1, 0.03
INSTANTS = 4000


def train(run: Any, folder: str) -> None:
    """Rank 1 sleeps in each step, in a mark of its own."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile

    from slurmopt import phase

    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        with phase("augment"):
            time.sleep(NAP * (run.rank.rank == SLOW))
        model(torch.ones(16, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(2):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        for _ in range(STEPS):
            step()
    recorded.export_chrome_trace(f"{folder}/rank-{run.rank.rank}.json.gz")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    outcomes = on_ranks(train, tmp_path_factory.mktemp("runs") / "one", str(folder), nodes=["a", "a"])
    assert [outcome.error for outcome in outcomes] == [None, None]
    return folder


@pytest.fixture(scope="module")
def profile(recorded: Path) -> Profile:
    return analyse({rank: read_file(recorded / f"rank-{rank}.json.gz") for rank in (0, 1)})


def test_the_whole_steps_are_examined(recorded: Path, profile: Profile) -> None:
    for one in profile.ranks:
        assert one.breakdown.steps == STEPS - 1
        assert sum(one.breakdown.shares.values()) == pytest.approx(one.breakdown.seconds, rel=1e-9)
        spans = steps_of(read_file(recorded / f"rank-{one.rank}.json.gz"))
        times = [(end - start) / 1e6 for start, end in spans]
        assert [sum(step.values()) for step in one.breakdown.by_step] == pytest.approx(times)


def test_shares_are_those_of_an_independent_count(recorded: Path, profile: Profile) -> None:
    """At evenly spaced instants, each row of the file is asked whether it covers the instant."""
    for one in profile.ranks:
        rows = json.loads(gzip.decompress((recorded / f"rank-{one.rank}.json.gz").read_bytes()))["traceEvents"]
        counted = count(rows)
        for name in (COMPUTE, EXPOSED):
            share = one.breakdown.shares[name] / one.breakdown.seconds
            assert share == pytest.approx(counted[name] / INSTANTS, abs=0.01), (one.rank, name)
        in_flight = one.breakdown.communication / one.breakdown.seconds
        assert in_flight == pytest.approx(counted["in flight"] / INSTANTS, abs=0.01)


def count(rows: list[dict[str, Any]]) -> dict[str, int]:
    spans = [(row["name"], row.get("cat"), row["ts"], row["ts"] + row["dur"]) for row in rows if row["ph"] == "X"]
    ends = [end for name, _, _, end in spans if name.startswith("Optimizer.step#")]
    first, last = min(ends), max(ends)
    counted = {COMPUTE: 0, EXPOSED: 0, "in flight": 0}
    for at in range(INSTANTS):
        instant = first + (at + 0.5) * (last - first) / INSTANTS
        here = {name: category for name, category, start, end in spans if start <= instant < end}
        computes = any(
            category == "cpu_op" and not name.startswith(("c10d::", "autograd::engine")) and "Backward" not in name
            for name, category in here.items()
        )
        flies = "gloo:all_reduce" in here or any(name.startswith("c10d::") for name in here)  # or is being called
        counted[COMPUTE] += computes
        counted["in flight"] += flies
        counted[EXPOSED] += flies and not computes
    return counted


def test_the_rank_that_the_others_wait_for_is_named_with_what_it_does(profile: Profile) -> None:
    assert profile.straggler is not None
    assert profile.straggler.rank == SLOW
    assert profile.straggler.waited > 0.7 * NAP * profile.straggler.last
    said = next(one for one in sentences(profile) if "is the slowest" in one.text)
    assert said.text.startswith(f"rank {SLOW} is the slowest: it starts")
    assert any("time in augment" in row for row in said.evidence), said.evidence


def test_operators_are_counted_once(recorded: Path, profile: Profile) -> None:
    """The times of all operators, without those that they call, are the time in which any of them runs."""
    rows = json.loads(gzip.decompress((recorded / "rank-0.json.gz").read_bytes()))["traceEvents"]
    ends = [row["ts"] + row["dur"] for row in rows if row["name"].startswith("Optimizer.step#")]
    operators = [row for row in rows if row.get("cat") == "cpu_op"]
    spans = sorted((row["tid"], row["ts"], row["ts"] + row["dur"]) for row in operators)
    covered, lane, until = 0.0, None, 0.0
    for thread, start, end in spans:
        if end > min(ends) and start < max(ends):
            until = until if thread == lane else 0.0
            covered += max(0.0, end - max(start, until))
            lane, until = thread, max(until, end)
    one = profile.ranks[0]
    assert sum(each.seconds for each in one.operations) == pytest.approx(covered / 1e6, rel=1e-6)
    calls = {each.name: each.calls for each in one.operations}
    assert calls["aten::addmm"] == 2 * (STEPS - 1)


def test_show_and_compare(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "show", str(recorded), "--json"]) == 0
    told = data_of(capsys.readouterr().out)
    assert told["straggler"]["rank"] == SLOW
    assert [one["rank"] for one in told["ranks"]] == [0, 1]
    assert sum(told["ranks"][0]["shares"].values()) == pytest.approx(told["ranks"][0]["seconds"])
    assert main(["profile", "show", str(recorded)]) == 0
    assert f"rank {SLOW} is the slowest" in capsys.readouterr().out
    words = [str(recorded / "rank-0.json.gz"), str(recorded / "rank-1.json.gz")]
    assert main(["profile", "compare", *words, "--json"]) == 0
    told = data_of(capsys.readouterr().out)
    assert told["shares"][0]["name"] == "augment"
    assert told["shares"][0]["more"] > 0.5 * NAP
