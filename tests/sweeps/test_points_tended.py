"""`slurmopt tend` of a point whose earlier tend was killed around sbatch, and of one that died before it had a config.
Slurm's commands are small programs here; `scripts/chaos calls --commands tend-sweep` asks the real ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.run_folder import events
from slurmopt.runs.submit import arrays
from slurmopt.slurm.cluster import cache

SQUEUE = """#!/bin/bash
format="${{@: -1}}"; field="${{format#JobArrayID:0}}"; field="${{field%%,*}}"; record="${{format##*Requeue:0}}"
while IFS='|' read -ra row; do
  for at in "${{!row[@]}}"; do printf '%s%s' "${{row[at]}}" "$([ $at = 12 ] && echo "$record" || echo "$field")"; done
done < {jobs}
"""


class Slurm:
    def __init__(self, folder: Path) -> None:
        self._jobs, self._calls = folder / "jobs", folder / "calls"
        self._jobs.touch()
        programs = {
            "squeue": SQUEUE.format(jobs=self._jobs),
            "sbatch": f'#!/bin/bash\necho "$*" >> {self._calls}\necho 9\n',
        }
        for name, text in programs.items():
            program = folder / ".tools" / name
            program.write_text(text)
            program.chmod(0o755)

    def has(self, sweep: Any, job: str, state: str, token: str) -> None:
        row = [job, state, "", "node1", "", "1:00", "5:00", "0", "", token, f"{sweep.folder.script} 0 0 1"]
        with self._jobs.open("a") as file:
            file.write("|".join([*row, str(int(time.time() - 60)), "1"]) + "\n")

    def submissions(self) -> int:
        return len(self._calls.read_text().splitlines()) if self._calls.exists() else 0


@pytest.fixture
def slurm(make_sweep: Callable[..., Any], tmp_path: Path) -> Slurm:
    plain = {"cluster": "mini", "version": "", "controllers": [], "max_array_size": 1001, "job_requeue": True}
    rights = {"enforces_accounts": False, "enforces_qos": False, "accounts": None, "partitions": []}
    cache.write("facts", {**plain, **rights, "accounting": False}, time.time())
    return Slurm(tmp_path)


@pytest.fixture
def sweep(make_sweep: Callable[..., Any], slurm: Slurm) -> Any:
    """Its one point was preempted, and is to be submitted again."""
    made = make_sweep("grid", "one", a=[1]).submitted("0", "7")
    made.folder.script.write_text(f"#!/bin/bash\nexport SLURMOPT_SWEEP={made.folder.path}\n")
    slurm.has(made, "7_0", "PREEMPTED", "slurmopt:7")
    return made


def tend(capsys: Any) -> list[tuple[str, str]]:
    assert main(["tend", "--json"]) == 0
    return [(deed["did"], deed["job"]) for deed in data_of(capsys.readouterr().out)]


def test_a_tend_that_was_killed_before_sbatch_is_made_up_for(sweep: Any, slurm: Slurm, capsys: Any) -> None:
    """The array job before it had just this point, too."""
    point = sweep.ended(0, "requeue", cause="preemption", next="submit")
    events.append(point.events, "submitting", backend="sbatch", token="slurmopt:part")
    assert tend(capsys) == [("submitted", "9_0")]
    assert slurm.submissions() == 1
    assert events.read(point.events)[-1]["job"] == "9_0"


def test_the_array_job_of_a_tend_that_was_killed_after_sbatch_is_the_points(
    sweep: Any, slurm: Slurm, capsys: Any
) -> None:
    point = sweep.ended(0, "requeue", cause="preemption", next="submit")
    events.append(point.events, "submitting", backend="sbatch", token="slurmopt:part")
    told = {"number": 1, "points": "0", "per_task": 1, "packed": False, "tasks": None, "part": "slurmopt:part"}
    events.append(sweep.folder.events, "submitting", backend="sbatch", token="slurmopt:array", **told, options=[])
    slurm.has(sweep, "8_0", "PENDING", "slurmopt:array")
    assert tend(capsys) == [("submitted", "8_0")]
    assert slurm.submissions() == 0
    assert events.read(point.events)[-1]["job"] == "8_0"


def test_a_point_that_died_before_it_had_a_config_comes_back(sweep: Any, slurm: Slurm, capsys: Any) -> None:
    point = sweep.started(0)
    point.config.unlink()
    assert tend(capsys) == [("submitted", "9_0")]
    assert events.read(point.events, "end")[-1]["cause"] == "preemption"


def test_the_array_job_of_a_sweeps_own_submission_that_broke_off_is_noted(
    sweep: Any, slurm: Slurm, capsys: Any
) -> None:
    """Of a retry that was killed once Slurm had answered; nothing of the sweep waits for room."""
    sweep.ended(0, "user error", cause="user error", next=None)
    told = {"number": 1, "points": "0", "per_task": 1, "packed": False, "tasks": None, "options": []}
    events.append(sweep.folder.events, "submitting", backend="sbatch", token="slurmopt:array", **told)
    assert tend(capsys) == []
    slurm.has(sweep, "8_0", "PENDING", "slurmopt:array")
    cache.place("queue").unlink()
    assert main(["tend", "--dry-run"]) == 0
    assert capsys.readouterr().out == "grid/one: was submitted before as job 8; that would be noted now\n"
    assert arrays.known(sweep.folder)[-1].job is None
    assert tend(capsys) == [("noted", "8")]
    assert arrays.known(sweep.folder)[-1].job == "8"
    assert (tend(capsys), slurm.submissions()) == ([], 0)


def test_a_sweep_that_is_named_and_left_alone_says_so(sweep: Any, slurm: Slurm, capsys: Any) -> None:
    sweep.ended(0, "user error", cause="user error", next=None)
    assert main(["tend", "grid", "grid/0"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    advice = "nothing is to be done; see: slurmopt status grid/one; for what failed: slurmopt retry grid/one"
    assert said.err.splitlines() == [f"slurmopt: grid/one: {advice}", f"slurmopt: grid/one/0: {advice}"]
