"""A seeded slice of `scripts/chaos sweeps`, which runs at full length by hand; and its judge finds what is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from private_cluster import clean_environment, require_slurm

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from chaos_runs.sweeps.judged import Judged, answers, judge  # noqa: E402
from chaos_runs.sweeps.point import score  # noqa: E402

from slurmopt.grid import submissions  # noqa: E402
from slurmopt.grid.point_ranges import Ranges  # noqa: E402
from slurmopt.grid.submissions import Submission  # noqa: E402
from slurmopt.run_folder import events  # noqa: E402
from slurmopt.run_folder.sweep_layout import SweepFolder  # noqa: E402


def chaos(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "chaos"), "sweeps", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, env=clean_environment())


@pytest.mark.skipif(find_spec("torch") is None, reason="scripts/chaos needs torch")
@pytest.mark.parametrize(
    ("packing", "kinds"),
    [
        (["--points", "10", "--faults", "2"], "launcher killed,array requeued"),
        (["--points", "24", "--per-task", "3", "--faults", "3"], "launcher killed,parent killed,array requeued"),
    ],
    ids=["each a task", "packed"],
)
def test_a_sweep_loses_no_point_and_runs_none_twice_whatever_is_killed(packing: list[str], kinds: str) -> None:
    require_slurm()
    done = chaos("--seed", "3", "--kinds", kinds, *packing)
    assert done.returncode == 0, done.stderr[-6000:]
    points, faults = packing[1], packing[-1]
    summary = done.stdout.splitlines()[-1]
    assert re.search(
        rf"seed 3: {points} of {points} points done .* {faults} faults .*, 0 wrong; \d+ s: ok$", summary
    ), summary
    assert done.stderr.count("the launcher killed") >= 2


@pytest.mark.skipif(find_spec("torch") is None, reason="scripts/chaos needs torch")
def test_a_kind_of_fault_that_does_not_exist_is_told_with_those_that_do() -> None:
    done = chaos("--kinds", "array requeued,earthquake")
    assert done.returncode == 2
    assert "earthquake: unknown; valid: tasks requeued, " in done.stderr


class Made:
    """A sweep of four points as array tasks leave it that two points share; each test spoils one thing."""

    def __init__(self, path: Path) -> None:
        self.sweep = SweepFolder(path)
        one = Submission(number=0, points=Ranges([(0, 3)]), per_task=2, packed=True, job="7", token="t")
        for point in range(4):
            self.point(point)
        told = {"token": "t", "number": 0, "points": "0-3", "per_task": 2, "packed": True}
        events.append(self.sweep.events, "submitting", **told)
        events.append(self.sweep.events, "submitted", token="t", job="7")
        submissions.write(self.sweep.sweep_file, 4, [one])
        self.record: list[dict[str, Any]] = [self.said("done", point) for point in range(4)]

    def said(self, word: str, point: int, **more: Any) -> dict[str, Any]:
        return {"time": 0.0, "said": word, "point": point, "attempt": 0, **more}

    def point(self, point: int) -> None:
        run, task = self.sweep.point(point), self.sweep.task(0, point // 2)
        for folder in (run.path, task.path):
            folder.mkdir(parents=True, exist_ok=True)
        events.append(run.events, "attempt", attempt=0, job=f"7_{point // 2}")
        self.end(point, 0)
        ended = {"attempt": 0, "outcome": "finished", "cause": "finished", "next": None, "step": 1}
        events.append(task.events, "point", point=point, state="ended", **ended, result={"score": score(point)})

    def end(self, point: int, attempt: int, **more: Any) -> None:
        ended = {"outcome": "finished", "cause": "finished", "next": None, "step": 1, "result": {"score": score(point)}}
        events.append(self.sweep.point(point).events, "end", attempt=attempt, **{**ended, **more})

    def wrong(self) -> list[tuple[int | None, str]]:
        found: Judged = judge(self.sweep, 4, self.record)
        return found.wrong


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_a_whole_sweep_is_right(made: Made) -> None:
    assert made.wrong() == []


def test_an_attempt_in_which_nothing_ran_repeats_the_end_before(made: Made) -> None:
    for attempt in (1, 2):
        events.append(made.sweep.point(1).events, "attempt", attempt=attempt, job="7_0")
        made.end(1, attempt, reason="nothing was left to do: it had ended in attempt 0")
    assert made.wrong() == []
    made.record.append({**made.said("started", 1), "time": 1e12, "attempt": 2})
    assert made.wrong() == [(1, "user code ran in attempt 2, after its final end")]


def test_a_second_end_is_found(made: Made) -> None:
    events.append(made.sweep.point(1).events, "attempt", attempt=1, job="7_0")
    made.end(1, 1)
    ((point, text),) = made.wrong()
    assert (point, text.partition(":")[0]) == (1, "2 final ends")


def test_a_point_that_failed_and_one_that_came_back_are_found(made: Made) -> None:
    path = made.sweep.point(2).events
    path.write_text(path.read_text().replace('"outcome": "finished"', '"outcome": "killed"'))
    made.end(3, 0, next="requeue")
    found = made.wrong()
    assert (2, "1 final ends: attempt 0 killed by finished; expected: one, finished") in found
    assert (3, "it came back after its final end") in found


def test_a_point_that_is_missing_and_one_that_ran_beside_itself_are_found(made: Made) -> None:
    made.sweep.point(0).events.unlink()
    made.sweep.point(0).path.rmdir()
    made.record.append(made.said("overlap", 3, other="attempt 0 is process 5"))
    found = made.wrong()
    assert (0, "has no records") in found
    assert (3, "attempt 0 ran beside another one: attempt 0 is process 5") in found


def test_a_torn_line_is_found(made: Made) -> None:
    with made.sweep.task(0, 1).events.open("a") as file:
        file.write('{"time": 3, "event": "poi\n')
    ((point, text),) = made.wrong()
    assert point is None
    assert text.startswith("tasks/0-1/events.jsonl: 1 torn lines")


def test_journals_that_disagree_are_found(made: Made) -> None:
    path = made.sweep.task(0, 1).events
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0].replace('"step": 1', '"step": 2'))
    made.sweep.more.write_text("later\n")
    value = json.loads(made.sweep.sweep_file.read_text())
    value["submissions"][0]["job"] = "8"
    made.sweep.sweep_file.write_text(json.dumps(value))
    found = dict.fromkeys(text.partition(":")[0] for _, text in made.wrong())
    assert {"`more` is still there", "tasks/0-1 and the point's own journal tell different ends"} <= set(found)
    assert (3, "0 final ends in the journal of tasks/0-1") in made.wrong()
    assert (0, "it ran as 7_0, and sweep.json has it in 8_0") in made.wrong()


def test_results_that_are_not_complete_are_found() -> None:
    rows = [{"point": point, "state": "finished", "metrics": {"score": score(point)}} for point in range(3)]
    found = Judged()
    answers(3, {"states": {"finished": 3}}, {"rows": rows}, found)
    assert found.wrong == []
    rows[1]["metrics"] = {}
    answers(4, {"states": {"finished": 3, "lost": 1}}, {"rows": rows}, found)
    assert [point for point, _ in found.wrong] == [None, None, 1]
