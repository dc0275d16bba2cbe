"""Each command that is printed behind `next` works as it is printed, in the folder in which it is printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from json_answer import data_of
from private_cluster import wait_until

TRAIN = """
import time
import slurmopt

def main(config):
    if config.get("wait"):
        while not slurmopt.stop_requested():
            time.sleep(0.05)
    slurmopt.progress(1, 1, loss=config.get("lr", 1))
    if config.get("lr") == 3:
        raise ValueError("a mistake")
    return {"loss": config.get("lr", 1)}

main.makes_process_group = True
"""
LABELLED = re.compile(r"^ *next:? +(?P<first>.*)$|^(?P<more> {4,}\S.*)$")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user, whose name needs quotes, with `slurmopt` on PATH."""
    home = tmp_path / "my project"
    (tmp_path / "bin").mkdir()
    home.mkdir()
    program = tmp_path / "bin" / "slurmopt"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m slurmopt "$@"\n')
    program.chmod(0o755)
    (home / "train.py").write_text(TRAIN)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(home)
    return home


def typed(line: str, *statuses: int) -> str:
    """What a line printed that somebody types into a shell; `statuses` are those that it may have."""
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)
    assert done.returncode in (statuses or (0,)), f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def commands_in(shown: str) -> list[str]:
    """The commands behind `next`, and those below it."""
    found: list[str] = []
    is_next = False
    for line in shown.splitlines():
        match = LABELLED.match(line)
        is_next = match is not None and (match["first"] is not None or is_next)
        if is_next and match is not None:
            found.append((match["first"] or match["more"]).strip())
    return found


def run_all(shown: str, *statuses: int) -> list[str]:
    """Types each command behind `next`; returns them."""
    commands = commands_in(shown)
    assert commands, shown
    for command in commands:
        typed(command, *(statuses or (0,)))
    return commands


LAUNCH = "slurmopt launch --local task._target_=train.main"


def test_of_a_run_that_finished(folder: Path) -> None:
    launched = typed(f"{LAUNCH} --name one")
    assert len(run_all(launched.replace("slurmopt cancel", "slurmopt history"))) > 3
    assert run_all(typed("slurmopt status one")) == run_all(typed("slurmopt status"))


def test_of_a_run_that_failed(folder: Path) -> None:
    typed(f"{LAUNCH} +lr=3 --name two --no-wait")
    typed("slurmopt wait two", 1)
    shown = typed("slurmopt status two")
    assert shown.index("ValueError: a mistake") < shown.index("next")
    errors, retry = commands_in(shown)
    assert commands_in(typed(errors)) == [retry]
    assert "failed: ValueError: a mistake" in typed(f"{retry} --wait", 1)
    assert "attempt 1 on " in typed("slurmopt history two")


def test_while_it_runs_and_after_it_was_cancelled(folder: Path) -> None:
    status, follow, cancel = commands_in(typed(f"{LAUNCH} +wait=true --name three --no-wait"))
    wait_until(lambda: "running" in typed(status), 60, "it runs")
    followed = subprocess.Popen(["bash", "-c", follow], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    typed(cancel)
    followed.communicate(timeout=180)
    typed("slurmopt wait three", 1)
    (again,) = commands_in(typed("slurmopt status three"))
    assert again.endswith("# goes on with it")
    typed(again)
    typed("slurmopt cancel three; slurmopt wait three", 1)


def test_of_a_launch_that_broke_off(folder: Path) -> None:
    typed(f"{LAUNCH} --name four '+text=\"it is\"'")
    (run,) = (folder / "runs" / "four").iterdir()
    for left in ("result.json", "report.json", "report.html"):
        (run / left).unlink(missing_ok=True)
    journal = run / "events.jsonl"
    journal.write_text(journal.read_text().splitlines()[0] + "\n")
    (again,) = commands_in(typed("slurmopt status four"))
    launched = typed(f"cd / && {again}")
    assert f"Started four/{run.name}" in launched
    assert data_of(typed("slurmopt status four --json"))[0]["state"] == "finished"


def test_of_a_sweep(folder: Path) -> None:
    launched = typed(f"{LAUNCH} -m +lr=1,2,3 --name five")
    typed("slurmopt wait five", 1)
    status, results, _ = commands_in(launched)
    typed(results)
    errors, retry, best = commands_in(typed(status))
    typed(errors)
    assert commands_in(typed(best))
    run_all(typed(best))
    typed(retry)
    typed("slurmopt wait five", 1)


def test_in_another_folder_of_runs(folder: Path) -> None:
    typed(f"{LAUNCH} --folder '../other runs' --name six")
    shown = typed("slurmopt status --folder '../other runs'")
    run_all(shown)


def test_of_init_and_of_import(folder: Path) -> None:
    (folder / "job.sbatch").write_text("#!/bin/bash\n#SBATCH --time=1\ntrue\n")
    (imported,) = commands_in(typed("slurmopt import job.sbatch"))
    typed(f"{imported} --local")
    (first,) = commands_in(typed("slurmopt init new"))
    typed(f"{first} --dry-run")
