"""Sweeps that are so large that several processes read and write: the same answers."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.job.facts import process_tree
from slurmopt.sweeps.results import export, ranking
from slurmopt.sweeps.results.outcomes import Table
from slurmopt.sweeps.status import packed_points, point_journals
from slurmopt.sweeps.status.parallel import parallel_map

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two cores: with one nothing is read by several processes"
)
COUNT, PER_TASK = 400, 5
WAYS = (["status", "mine", "--json"], ["results", "mine", "--json"], ["results", "mine", "--csv"], ["results", "mine"])


@pytest.fixture
def varied(make_sweep: Any) -> Any:
    """Points that finished, failed in different ways, told other metrics, were cancelled, are going on, and a
    journal with foreign lines."""
    chance = random.Random(7)
    made = make_sweep(lr=[0.1, 0.2], seed=list(range(COUNT // 2))).submitted(f"0-{COUNT - 1}", "7", per_task=PER_TASK)
    made.folder.run.path.joinpath("cancelled").write_text("3-9\n")
    for task in range(COUNT // PER_TASK - 1):
        run = made.task(0, task)
        for point in range(task * PER_TASK, (task + 1) * PER_TASK):
            lot = chance.random()
            if lot < 0.1:
                made.task(0, task, (point, "started"))
            elif lot < 0.3:
                made.packed_end(run, point, "user_error", error=f"ValueError: {point % 3}", rank=point % 2)
            elif lot < 0.5:
                made.packed_end(run, point, metrics={"loss": point, "steps": 2**60 + point})
            else:
                made.packed_end(run, point, metrics={"loss": chance.random(), f"of {task % 4}": -1.5}, seconds=3.0)
        with run.events.open("a") as file:
            file.write('{"event": "point", "point": "x"}\nno line of ours\n')
    return made


@pytest.mark.parametrize("words", WAYS, ids=" ".join)
def test_several_processes_tell_what_one_tells(varied: Any, capsys: Any, monkeypatch: Any, words: list[str]) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)  # the pace counts up to now
    assert main(words) == 0
    alone = capsys.readouterr().out
    for module in (packed_points, ranking):
        monkeypatch.setattr(module, "_MANY", 2)
    monkeypatch.setattr(ranking, "_PIECE", 7)
    monkeypatch.setattr(export, "_FEW", 2)
    monkeypatch.setattr(point_journals, "of_task", elsewhere(point_journals.of_task))
    if words[-1] in ("--json", "--csv"):
        monkeypatch.setattr(Table, "rows", elsewhere(Table.rows))
    assert main(words) == 0
    together = capsys.readouterr().out
    assert (data_of(together) == data_of(alone)) if words[-1] == "--json" else (together == alone)


def elsewhere(function: Any) -> Any:
    """`function`, which this process itself must not call: it would do the work of others that died."""
    here = os.getpid()

    def called(*words: Any) -> Any:
        assert os.getpid() != here
        return function(*words)

    return called


def test_results_come_in_order_from_other_processes() -> None:
    found = list(parallel_map(lambda item: (item * item, os.getpid()), range(20)))
    assert [square for square, _ in found] == [item * item for item in range(20)]
    assert len({pid for _, pid in found} - {os.getpid()}) > 1


def test_the_items_of_a_process_that_dies_are_worked_on_here() -> None:
    here = os.getpid()

    def work(item: int) -> int:
        if item == 5 and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return -item

    assert list(parallel_map(work, range(20))) == [-item for item in range(20)]


def test_an_error_is_told_here() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        list(parallel_map(lambda item: Path(f"no-such-file-{item}").read_text(), range(4)))


def test_processes_end_when_nobody_reads_any_more() -> None:
    before = set(process_tree.descendants(os.getpid()))
    for result in parallel_map(lambda item: bytes(1 << 20), range(1000)):
        assert len(result) == 1 << 20
        break
    assert set(process_tree.descendants(os.getpid())) <= before


def test_all_is_worked_on_here_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise OSError(errno.EAGAIN, "no process is left")

    monkeypatch.setattr(os, "fork", refused)
    assert list(parallel_map(lambda item: (item, os.getpid()), range(9))) == [(item, os.getpid()) for item in range(9)]
