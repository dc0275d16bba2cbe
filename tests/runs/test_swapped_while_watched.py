"""Somebody puts something else in the place of a run's folder while its owner launches or watches it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from private_cluster import clean_environment, wait_until
from runs.test_two_users import Team, make_team

from slurmopt.errors import RunError
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import replace_json
from slurmopt.run_folder.access.open_folders import holding
from slurmopt.runs.submit.exactly_once import journaled

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: becoming two other users needs root")

SWAP = """
os.umask(0)
os.rename('runs', 'gone')
run = Path('runs/mine/1')
log = run / 'logs' / 'attempt-0' / 'rank-0.log'
log.parent.mkdir(parents=True)
log.write_text('PLANTED \\x1b]0;title')
"""
"""The attacker, as a member of the group that may write the project."""
WHAT = {
    "a run": """
lines = Path('gone/mine/lines').read_text()
(run / 'events.jsonl').write_text(lines)
""",
    "FIFOs": "os.mkfifo(run / 'events.jsonl'); os.mkfifo(run / 'config.yaml')",
    "nothing to be read": "run.chmod(0o700)",
    "a link": "shutil.rmtree('runs'); Path('runs').symlink_to('theirs')",
    "a file": "shutil.rmtree('runs'); Path('runs').write_text('PLANTED')",
}
PLANTED = """{"time": 1, "event": "created", "name": "PLANTED", "id": "1"}
{"time": 2, "event": "submitted", "job": "66600666006", "backend": "sbatch", "token": "PLANTED"}
{"time": 3, "event": "attempt", "attempt": 0, "job": "66600666006", "nodes": "PLANTED"}
{"time": 4, "event": "end", "attempt": 0, "outcome": "user error", "error": "PLANTED"}
"""
TASK = "task.command=[bash, -c, 'echo mine; while [ -d {folder} ]; do sleep 0.05; done']"
SUBMISSION = {"number": 0, "job": "9", "token": "t9", "points": "0-1", "per_task": 1, "packed": False, "tasks": 2}
WORDS = {
    "launch": ["launch", "launch.name=mine", "launch.id=1", "launch.backend=local"],
    "follow": ["logs", "mine/1", "--follow"],
    "watch": ["status", "mine/1", "--watch"],
}


@pytest.fixture
def team() -> Iterator[Team]:
    yield from make_team()


def started(team: Team, *words: str) -> subprocess.Popen[str]:
    """The victim's command."""
    return python(team, "-m", "slurmopt", *words)


def python(team: Team, *words: str) -> subprocess.Popen[str]:
    """Python, as the victim."""
    victim = team.victim
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=victim.at,
        env={**clean_environment(), "HOME": victim.home, "PYTHONUNBUFFERED": "1", **victim.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        user=victim.uid,
        group=victim.uid,
        extra_groups=[victim.team],
        umask=victim.umask,
    )


def is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("command", WORDS)
def test_who_watches_is_told_and_sees_nothing_of_it(team: Team, command: str, what: str) -> None:
    task = TASK.format(folder=team.project)
    if command != "launch":
        done = team.victim.launch(task, "launch.wait=false")
        assert done.returncode == 0, done.stderr
    watching = started(team, *WORDS[command], *([task] if command == "launch" else []))
    assert watching.stdout is not None
    for line in iter(watching.stdout.readline, ""):
        if line.startswith(("mine\n", "mine/1: running")):
            break
    log = team.run / "logs" / "attempt-0" / "rank-0.log"
    wait_until(lambda: log.exists() and log.read_text() == "mine\n", 60, "the task begins")
    job = events.read(team.run / "events.jsonl", "submitted")[0]["job"]
    code = f"lines = {PLANTED!r}\n" + WHAT[what].replace("Path('gone/mine/lines').read_text()", "lines")
    done = team.attacker.python(SWAP + code)
    assert done.returncode == 0, done.stderr
    out, err = watching.communicate(timeout=180)
    assert watching.returncode == 2, out + err
    assert "PLANTED" not in out + err
    assert "66600666006" not in out + err
    (line,) = [line for line in err.splitlines() if line.startswith("slurmopt: error: ")]
    assert f"mine/1: {team.run} is no longer the folder that the launch made; " in line
    assert "another user (nobody)" in line
    own = team.project / "gone" / "mine" / "1"
    assert f"put it back from {own}" in line
    pid = job.removeprefix("local-")
    assert line.endswith(f"or end job {job} with `kill {pid}`")
    assert team.victim.run("kill", pid).returncode == 0
    wait_until(lambda: not is_alive(int(pid)), 60, "the end of the run")


# What the victim's launch does is held up, by itself, where it is about to open a file of its own run.
HELD_UP = """
import os, sys, time
from pathlib import Path
def wait(event, words):
    if event == {event!r} and str(words[{at}]).endswith({name!r}) and not Path("../signs/there").exists():
        Path("../signs/there").touch()
        while not Path("../signs/on").exists():
            time.sleep(0.01)
sys.addaudithook(wait)
from slurmopt.cli import main
sys.exit(main(sys.argv[1:]))
"""
OWN = (".submission", "events.jsonl", "job.sbatch", "overrides.yaml")
MOMENTS = {
    "before its lock": ("open", 0, "/.submission"),
    "before its claim": ("os.symlink", 1, "/.submitting"),
    "before its script is read": ("open", 0, "/job.sbatch"),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("what", ["links", "run", "file"])
def test_a_launch_whose_folder_is_swapped_before_the_submission_says_so(team: Team, moment: str, what: str) -> None:
    event, at, name = MOMENTS[moment]
    code = HELD_UP.format(event=event, at=at, name=name)
    signs = team.project.parent / "signs"
    signs.mkdir()
    os.chown(signs, team.victim.uid, team.victim.team)
    target = team.project.parent / "own"
    target.write_text("own\n")
    os.chown(target, team.victim.uid, team.victim.team)
    put = {
        "links": f"run.mkdir(parents=True)\nfor name in {OWN}: (run / name).symlink_to({str(target)!r})",
        "run": "run.parent.mkdir(parents=True); shutil.copytree('/etc/skel', run); (run / 'events.jsonl').touch()",
        "file": "run.parent.mkdir(parents=True); run.touch()",
    }
    words = [*WORDS["launch"], "task.command=[true]"]
    launch = python(team, "-c", code, *words)
    wait_until((signs / "there").exists, 60, "the launch", lambda: launch.poll())
    swap = "os.umask(0); os.rename('runs', 'gone'); run = Path('runs/mine/1')\n"
    done = team.attacker.python(swap + put[what])
    assert done.returncode == 0, done.stderr
    before = sorted(path.name for path in team.project.rglob("runs/**/*"))
    (signs / "on").touch()
    out, err = launch.communicate(timeout=180)
    assert (launch.returncode, out) == (2, ""), err
    own = team.project / "gone" / "mine" / "1"
    (line,) = err.splitlines()
    assert line.startswith(f"slurmopt: error: mine/1: {team.run} is no longer the folder that the launch made; ")
    assert "belongs to another user (nobody): nothing of it is used, and nothing was submitted; " in line
    assert line.endswith(f"put it back from {own}, and repeat the command")
    assert sorted(path.name for path in team.project.rglob("runs/**/*")) == before
    assert target.read_text() == "own\n"
    assert not events.read(own / "events.jsonl", "submitted", "attempt")
    done = team.attacker.python("os.rename('runs', 'theirs'); os.rename('gone', 'runs')")
    assert done.returncode == 0, done.stderr
    done = team.victim.launch("task.command=[true]")
    assert done.returncode == 0, done.stderr
    assert [event["outcome"] for event in events.read(team.run / "events.jsonl", "end")] == ["finished"]


@pytest.mark.parametrize("words", [["one/1", "two/2"], ["sweep/3"], ["one/1", "sweep/3"]], ids=" ".join)
def test_of_several_the_others_are_watched_on(make_run: Any, tmp_path: Path, words: list[str]) -> None:
    """Nobody else's: the owner has moved something there."""
    make_run("one", "1").submitted("7")
    make_run("two", "2").submitted("8")
    sweep = make_run("sweep", "3").submitted("9").folder
    (sweep.path / "points").mkdir()
    (sweep.path / "points.json").write_text("{}")
    replace_json(sweep.path / "sweep.json", {"points": 2, "submissions": [SUBMISSION]})
    swapped = tmp_path / "runs" / words[-1]
    watching = subprocess.Popen(
        [sys.executable, "-m", "slurmopt", "status", *words, "--watch"],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert watching.stdout is not None
    job = {"two/2": "8", "sweep/3": "9"}[words[-1]]
    said = f"{words[-1]}: {swapped} is no longer the folder that the launch made; somebody has put something else there"
    for line in iter(watching.stdout.readline, ""):
        if "pending" in line and not (tmp_path / "own").exists():
            swapped.rename(tmp_path / "own")
            swapped.mkdir()
            (swapped / "events.jsonl").write_text(PLANTED)
        assert "PLANTED" not in line
        if said in line:
            break
    assert line.endswith(f"put it back from {tmp_path}/own, or end job {job} with `scancel {job}`\n")
    if len(words) == 1:
        assert watching.wait(30) == 2
    else:
        assert watching.poll() is None
        watching.terminate()
        watching.wait(30)


@pytest.mark.parametrize("tried", [True, False])
def test_what_an_earlier_try_may_have_submitted_is_still_looked_for(make_run: Any, tmp_path: Path, tried: bool) -> None:
    run = make_run("one", "1").folder
    run.script.write_text("#!/bin/bash\n")
    if tried:
        events.append(run.events, "submitting", token="slurmopt:1", backend="sbatch")
    own = tmp_path / "own"

    def swap_and_fail() -> None:
        with journaled(run, "sbatch"):
            os.rename(run.path, own)
            run.path.mkdir()
            raise RunError("swapped")

    with holding([run.path]), pytest.raises(RunError):
        swap_and_fail()
    told = [event["event"] for event in events.read(own / "events.jsonl")]
    assert ("submit-failed" in told) != tried
    assert os.listdir(run.path) == []
