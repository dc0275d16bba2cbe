"""Who may rename the folders above a run puts something else in its place while an attempt runs: two real users."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from private_cluster import clean_environment, wait_until
from runs.test_two_users import Team, make_team

from slurmopt.run_folder import events

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: becoming two other users needs root")

FILES = (
    "events.jsonl", "config.yaml", "result.json", "requeue", "hostfile", "task.json", "heartbeat/attempt-1/stop",
    "heartbeat/attempt-1/slurm", "heartbeat/attempt-1/rank-0.json", "heartbeat/attempt-1/verdict",
    "heartbeat/attempt-1/stacks", "heartbeat/attempt-1/rendezvous", "logs/attempt-1/rank-0.log", "logs/.probe",
)  # fmt: skip
PLANT = {
    "links": "(run / name).symlink_to({own!r})",
    "fifos": "os.mkfifo(run / name, 0o666)",
    "files": "(run / name).touch(0o666)",
}
"""What the attacker makes for each of FILES in a folder of their own."""
OTHERS = {
    "a link to a folder of the victim's": "run.parent.mkdir(parents=True); run.symlink_to({private!r})",
    "another run of the victim's": "run.parent.mkdir(parents=True); run.symlink_to(Path('gone/mine/other').absolute())",
}
TASK = """
trap '' USR1
touch {private}/started
until [ -e {private}/end ]; do sleep 0.05; done
exit $(cat {private}/end)
"""


@pytest.fixture
def team() -> Iterator[Team]:
    for made in make_team():
        private = made.project.parent / "private"
        private.mkdir(mode=0o755)
        (private / ".bashrc").write_text("own\n")
        (private / "task.sh").write_text(TASK.format(private=private))
        for path in (private, private / ".bashrc"):
            os.chown(path, made.victim.uid, made.victim.team)
        yield made


def private(team: Team) -> Path:
    return team.project.parent / "private"


def swap(team: Team, what: str) -> None:
    """The attacker does it, as a member of the group that may write the project."""
    own = str(private(team) / ".bashrc")
    if what in OTHERS:
        code = OTHERS[what].format(private=str(private(team)))
    else:
        code = (
            f"for name in {FILES!r}:\n"
            f"    (run / name).parent.mkdir(parents=True, exist_ok=True); {PLANT[what].format(own=own)}\n"
            f"for path in (run, *run.rglob('*')):\n"
            f"    if not path.is_symlink(): path.chmod(0o777)"
        )
    done = team.attacker.python(f"os.umask(0); run = Path({str(team.run)!r}); os.rename('runs', 'gone')\n{code}")
    assert done.returncode == 0, done.stderr


def seen(folder: Path) -> dict[str, tuple[int, int]]:
    """All that is in a folder: size and inode."""
    paths = [path for path in folder.rglob("*") if path.name not in ("started", "end")]
    return {str(path): (path.lstat().st_size, path.lstat().st_ino) for path in paths}


class Attempt:
    """An attempt of the victim's, by the job script, as Slurm starts it."""

    def __init__(self, team: Team, script: str) -> None:
        self.team = team
        victim = team.victim
        self.shell = subprocess.Popen(
            ["bash", "-s"],
            cwd=victim.at,
            env={**clean_environment(), "HOME": victim.home},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user=victim.uid,
            group=victim.uid,
            extra_groups=[victim.team],
            umask=victim.umask,
        )
        assert self.shell.stdin is not None
        self.shell.stdin.write(script)
        self.shell.stdin.close()
        self.shell.stdin = None
        wait_until((private(team) / "started").exists, 60, "the training", lambda: self.shell.poll())

    def end(self, status: int) -> None:
        (private(self.team) / "end.new").write_text(str(status))
        os.rename(private(self.team) / "end.new", private(self.team) / "end")

    def wait(self) -> tuple[int, str]:
        said = self.shell.communicate(timeout=180)[1]
        return self.shell.returncode, said


def begin(team: Team) -> Attempt:
    """The second attempt of a run, which waits for its word."""
    end = private(team) / "end"
    end.write_text("0")
    for name in ("1", "other"):
        done = team.victim.launch(
            f"launch.id={name}", f"task.command=[bash, {private(team)}/task.sh]", "restart.no_progress=9"
        )
        assert done.returncode == 0, done.stderr
    for path in (end, private(team) / "started"):
        path.unlink()
    return Attempt(team, (team.run / "job.sbatch").read_text())


def told(run: Path) -> list[str]:
    return [event["event"] for event in events.read(run / "events.jsonl") if event.get("attempt") == 1]


@pytest.mark.parametrize("what", [*PLANT, *OTHERS])
@pytest.mark.parametrize("status", [0, 75])
def test_nothing_is_written_to_what_takes_the_place_of_a_run(team: Team, what: str, status: int) -> None:
    attempt = begin(team)
    swap(team, what)
    own = private(team), team.project / "gone" / "mine" / "other", team.project / "runs"
    before = [seen(folder) for folder in own]
    attempt.shell.send_signal(signal.SIGUSR1)
    gone = team.project / "gone" / "mine" / "1"
    wait_until(lambda: (gone / "heartbeat" / "attempt-1" / "stop").exists(), 30, "the word to stop", lambda: told(gone))
    attempt.end(status)
    returncode, said = attempt.wait()
    assert returncode == (69 if status else 0), said
    assert said.count(f"something else is at {team.run} now: nothing of it is used") == 1
    for word in ("Traceback", "cannot be written", "No such file"):
        assert word not in said
    assert [seen(folder) for folder in own] == before
    assert (private(team) / ".bashrc").read_text() == "own\n"
    ended = ["attempt", "signal", "end"]
    assert told(gone) == (ended if status == 0 else [*ended, "requeue-refused"])


def test_a_run_that_is_put_back_in_its_place_goes_on(team: Team) -> None:
    attempt = begin(team)
    swap(team, "links")
    attempt.shell.send_signal(signal.SIGUSR1)
    there = team.attacker.python("os.rename('runs', 'theirs'); os.rename('gone', 'runs')")
    assert there.returncode == 0, there.stderr
    attempt.end(75)
    returncode, said = attempt.wait()
    assert (returncode, "something else" in said) == (75, False), said
    assert told(team.run) == ["attempt", "signal", "end", "requeue"]
