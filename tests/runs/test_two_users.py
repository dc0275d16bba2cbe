"""Two real users on one machine: what one of them cannot do to the runs of the other."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from private_cluster import clean_environment, unprivileged_user, wait_until

from slurmopt.errors import JobError
from slurmopt.run_folder import events, private
from slurmopt.run_folder.access import owner
from slurmopt.run_folder.access.files import open_append, replace_text
from slurmopt.slurm.script.render import supervisor

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: becoming two other users needs root")

TRAIN = """
import slurmopt


def main(config):
    (slurmopt.current_run().folder.path / "token.py").write_text("raise SystemExit('the wrong token')")
    return 1


main.makes_process_group = True  # without torch
"""
EVIL = "import os; open({!r}, 'a').write(str(os.getuid()))\n"
"""What an attacker puts where somebody else's Python may import it: it leaves a trace of who ran it."""


@dataclass
class User:
    """Somebody who types commands in `at`; a member of the group `team` too."""

    uid: int
    at: Path
    team: int
    home: str = "/nonexistent"
    umask: int = 0o022
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        environment = {**clean_environment(), "HOME": self.home, **self.environment}
        options = {"user": self.uid, "group": self.uid, "extra_groups": [self.team], "umask": self.umask, **options}
        return subprocess.run(
            words, cwd=self.at, env=environment, capture_output=True, text=True, timeout=120, check=False, **options
        )

    def slurmopt(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "slurmopt", *words, **options)

    def launch(self, *words: str, name: str = "mine", **options: Any) -> subprocess.CompletedProcess[str]:
        given = (f"launch.name={name}", "launch.id=1", "launch.backend=local", *words)
        return self.slurmopt("launch", *given, **options)

    def python(self, code: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-c", f"import os, shutil; from pathlib import Path\n{code}")


@dataclass
class Team:
    """A project folder as groups have it, 2775, with one user who works there and another who should not be trusted."""

    project: Path
    victim: User
    attacker: User
    trace: Path
    """What EVIL leaves."""

    @property
    def run(self) -> Path:
        return self.project / "runs" / "mine" / "1"

    def evil(self) -> str:
        return EVIL.format(str(self.trace))


@pytest.fixture
def team() -> Iterator[Team]:
    yield from make_team()


def make_team() -> Iterator[Team]:
    folder = Path(tempfile.mkdtemp(prefix="team-", dir="/tmp"))  # pytest's own are closed to other users
    folder.chmod(0o755)
    victim, attacker = pwd.getpwnam(unprivileged_user()), pwd.getpwnam("nobody")
    group = attacker.pw_gid
    project, trace = folder / "project", folder / "trace"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    os.chown(project / "train.py", victim.pw_uid, group)
    os.chown(project, victim.pw_uid, group)
    project.chmod(0o2775)
    trace.touch()
    trace.chmod(0o666)
    made = Team(
        project,
        User(victim.pw_uid, project, group, victim.pw_dir, umask=0o002, environment=state(folder, victim.pw_uid)),
        User(attacker.pw_uid, project, group, environment=state(folder, attacker.pw_uid)),
        trace,
    )
    yield made

    def is_gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    # A batch shell that is just ending may still write into its run folder, such as the report.
    wait_until(is_gone, 60, f"{folder} is gone")


def state(folder: Path, uid: int) -> dict[str, str]:
    """A state folder of the user's own, as a home has one."""
    (place := folder / f"state-{uid}").mkdir(mode=0o700)
    os.chown(place, uid, -1)
    return {"XDG_STATE_HOME": str(place)}


def writable(folder: Path) -> list[str]:
    """What group or others may write, of a folder and all in it."""
    paths = [folder, *folder.rglob("*")]
    return [str(path) for path in paths if not path.is_symlink() and path.lstat().st_mode & 0o022]


def outcome(run: Path) -> list[object]:
    return [event.get("outcome") for event in events.read(run / "events.jsonl") if event["event"] == "end"]


def wait_for_the_second_end(run: Path) -> None:
    """A retry does not wait for its run."""
    deadline = time.monotonic() + 120
    while len(found := outcome(run)) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found == ["finished", "finished"]


@pytest.mark.parametrize("task", ["task._target_=train.main", "task.command=[echo, hello]"])
def test_a_group_may_read_a_run_and_write_nothing_of_it(team: Team, task: str) -> None:
    (team.project / "big.py").touch(mode=0o664)
    done = team.victim.launch(task, "launch.group_access=true", "environment.snapshot=copy")
    assert done.returncode == 0, done.stderr
    assert outcome(team.run) == ["finished"]  # in spite of the token.py that the training writes there
    assert writable(team.run.parent) in ([], [str(team.run / "token.py")])  # the training's own
    assert stat.S_IMODE(team.run.stat().st_mode) & 0o777 == 0o750
    assert "hello" in team.attacker.run("cat", *map(str, team.run.glob("logs/*/rank-0.log"))).stdout or "_t" in task
    assert team.attacker.run("cat", str(team.run / "config.yaml")).returncode == 0
    assert team.attacker.run("mv", str(team.run), str(team.run.with_name("2"))).returncode != 0
    assert team.attacker.run("tee", "-a", str(team.run / "events.jsonl"), input="{}").returncode != 0


def test_the_training_keeps_the_umask_of_its_user(team: Team) -> None:
    code = "import os; print(oct(os.umask(0)))"
    done = team.victim.launch(f'task.command=[{sys.executable}, -c, "{code}"]')
    assert done.returncode == 0, done.stderr
    assert "0o2" in (team.run / "logs" / "attempt-0" / "rank-0.log").read_text()


def test_a_folder_for_its_runs_that_somebody_else_has_made_is_refused(team: Team) -> None:
    scratch = team.project.parent / "scratch"
    scratch.mkdir()
    scratch.chmod(0o1777)
    theirs = scratch / "mine"
    assert team.attacker.run("mkdir", "-m", "777", str(theirs)).returncode == 0
    done = team.victim.launch("task.command=[true]", f"launch.folder={scratch}")
    assert done.returncode == 2
    assert f"{theirs} belongs to another user (nobody)" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(theirs.iterdir()) == []
    assert team.attacker.run("ln", "-s", str(team.project), str(scratch / "linked")).returncode == 0
    (scratch / "roots").mkdir()
    (scratch / "roots").chmod(0o777)
    done = team.victim.launch("task.command=[true]", f"launch.folder={scratch}", name="roots")
    assert f"; have its owner, root, do this: chmod go-w {scratch}/roots, or have your runs in another" in done.stderr
    done = team.victim.launch("task.command=[true]", f"launch.folder={scratch}", name="linked")
    assert "is a link of another user (nobody)" in done.stderr
    done = team.victim.launch("task.command=[true]", f"launch.folder={scratch}", name="other")
    assert done.returncode == 0, done.stderr  # one's own folder in a sticky one is safe
    assert team.attacker.run("mv", str(scratch / "other"), str(scratch / "gone")).returncode != 0


def test_each_member_of_a_group_has_runs_in_one_folder(team: Team) -> None:
    colleague = team.attacker
    colleague.umask = 0o002
    for user, name in ((team.victim, "mine"), (colleague, "theirs"), (team.victim, "another")):
        done = user.launch("task.command=[true]", name=name)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    runs = team.project / "runs"
    assert stat.S_IMODE(runs.stat().st_mode) == 0o2775
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in runs.iterdir()} == dict.fromkeys(
        ("mine", "theirs", "another"), 0o2755
    )


def test_a_folder_of_ones_own_runs_that_others_may_write_is_closed_and_its_runs_go_on(team: Team) -> None:
    place = team.project / "runs" / "mine"
    for words in (("launch.id=2",), ()):
        place.mkdir(parents=True, exist_ok=True)
        os.chown(place, team.victim.uid, team.victim.team)
        place.chmod(0o2775)  # as an umask of 002 left it
        done = team.victim.launch("task.command=[true]", *words)
        assert done.returncode == 0, done.stderr
        said = (
            f"slurmopt: {place} could be written by others (mode 2775), who could put another run in the place of yours"
        )
        assert done.stderr.startswith(said)
        assert len(done.stderr.splitlines()) == 1
        assert stat.S_IMODE(place.stat().st_mode) == 0o2755
    place.chmod(0o2775)
    done = team.victim.slurmopt("retry", "mine/1", "--finished")
    assert done.returncode == 0, done.stderr
    assert said in done.stderr
    wait_for_the_second_end(team.run)


def test_a_folder_above_that_everybody_may_write_is_told_at_launch(team: Team) -> None:
    team.project.chmod(0o777)
    done = team.victim.launch("task.command=[true]")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"slurmopt: {team.project} may be written by everybody (mode 777)")
    assert len(done.stderr.splitlines()) == 1
    assert team.victim.slurmopt("retry", "mine/1", "--finished").stderr == ""
    # The sticky bit is enough, also of an administrator who is not root.
    os.chown(team.project, team.attacker.uid, team.attacker.team)
    team.project.chmod(0o1777)
    assert team.victim.launch("task.command=[true]", "launch.id=2").stderr == ""


def sweep_that_waits(team: Team, name: str, user: User) -> Path:
    """A sweep whose points were not all submitted, as far as `tend` looks before it submits."""
    sweep = team.project / "runs" / name / "1"
    asked = {"time": 1, "event": "submitting", "backend": "sbatch", "token": "t"}
    of_array = {"number": 0, "points": "0", "per_task": 1, "packed": False}
    answered = {"time": 1, "event": "submitted", "backend": "sbatch", "token": "t", "job": "1"}
    journal = "".join(f"{json.dumps(event)}\n" for event in ({**asked, **of_array}, answered))
    there = user.python(
        f"path = Path({str(sweep)!r}); path.mkdir(parents=True, mode=0o700)\n"
        f"for name in ('points.json', 'job.sbatch', 'config.yaml', 'more'): (path / name).write_text('{{}}')\n"
        f"(path / 'events.jsonl').write_text({journal!r})"
    )
    assert there.returncode == 0, there.stderr
    return sweep


def test_tend_tells_of_a_sweep_that_it_does_not_go_on_with_and_passes_over_those_of_others(team: Team) -> None:
    refused = [sweep_that_waits(team, name, team.victim) for name in ("first", "second")]
    for sweep in refused:
        os.chown(sweep.parent, team.attacker.uid, team.attacker.team)
    theirs = sweep_that_waits(team, "theirs", team.attacker)
    theirs.chmod(0o755)
    done = team.victim.slurmopt("tend")
    for sweep in refused:
        assert f"the next points are not submitted yet: {sweep.parent} belongs to another user (nobody)" in done.stderr
    assert str(theirs) not in done.stderr
    assert "Traceback" not in done.stderr


def swap(team: Team) -> str:
    """The attacker, whom the group lets rename in the project, puts a folder in the place of the run, with the
    supervisor.sh that every run has. Returns the script's text, which is what Slurm holds of a job."""
    script = (team.run / "job.sbatch").read_text()
    there = team.attacker.python(
        f"os.rename('runs', 'gone')\n"
        f"run = Path({str(team.run)!r})\n"
        f"for name in ('logs', 'heartbeat'): (run / name).mkdir(parents=True)\n"
        f"(run / 'supervisor.sh').write_text({supervisor()!r})\n"
        f"for name in ('json', 'token', 'sitecustomize', 'os', 'slurmopt', 'argparse'):\n"
        f"    (run / (name + '.py')).write_text({team.evil()!r})\n"
        f"for path in (run, *run.rglob('*')): path.chmod(0o777)\n"
    )
    assert there.returncode == 0, there.stderr
    return script


def start(team: Team, script: str) -> subprocess.CompletedProcess[str]:
    """The victim's job starts, and waits a second, not sixty, for folders that are somebody else's."""
    assert "patience=60" in script
    return team.victim.run("bash", "-s", input=script.replace("patience=60", "patience=1", 1))


def test_a_run_folder_that_was_swapped_while_the_job_waited_runs_nobody_elses_code(team: Team) -> None:
    assert team.victim.launch("task.command=[echo, mine]").returncode == 0
    script = swap(team)
    done = start(team, script)
    assert done.returncode == 69
    assert f"{team.run} belongs to another user: the job ends" in done.stderr
    assert team.trace.read_text() == ""
    assert sorted(path.name for path in team.run.iterdir() if path.is_dir()) == ["heartbeat", "logs"]
    assert not list((team.run / "logs").iterdir())


def test_no_attempt_on_this_machine_runs_a_script_that_was_put_in_the_place_of_ones_own(team: Team) -> None:
    assert team.victim.launch("task.command=[echo, mine]").returncode == 0
    swap(team)
    there = team.attacker.python(
        f"run = Path({str(team.run)!r})\n"
        f"(run / 'job.sbatch').write_text('echo foreign >> {team.trace}')\n"
        f"(run / 'overrides.yaml').touch()\n"
        f"(run / 'overrides.yaml').chmod(0o666)\n"
    )
    assert there.returncode == 0, there.stderr
    done = team.victim.run(sys.executable, "-P", "-m", "slurmopt.backends.runner", str(team.run))
    assert done.returncode == 69
    assert "no attempt is started" in done.stderr
    assert team.trace.read_text() == ""


def test_a_link_in_the_place_of_a_run_folder_is_not_followed(team: Team) -> None:
    assert team.victim.launch("task.command=[echo, mine]").returncode == 0
    script = (team.run / "job.sbatch").read_text()
    there = team.attacker.python(
        f"os.rename('runs', 'gone'); run = Path({str(team.run)!r})\n"
        f"run.parent.mkdir(parents=True); run.symlink_to(Path('gone/mine/1').absolute())"
    )
    assert there.returncode == 0, there.stderr
    done = start(team, script)
    assert (done.returncode, "belongs to another user" in done.stderr) == (69, True)


def test_a_link_of_ones_own_to_somebody_elses_file_is_not_followed(team: Team) -> None:
    assert team.victim.launch("task.command=[echo, mine]").returncode == 0
    theirs = team.project / "theirs.yaml"
    assert team.attacker.run("touch", str(theirs)).returncode == 0
    (team.run / "config.yaml").unlink()
    (team.run / "config.yaml").symlink_to(theirs)
    os.lchown(team.run / "config.yaml", team.victim.uid, team.victim.team)
    done = start(team, (team.run / "job.sbatch").read_text())
    assert (done.returncode, "config.yaml belongs to another user" in done.stderr) == (69, True)


def test_a_folder_of_the_victims_that_the_group_may_write_is_no_run(team: Team) -> None:
    assert team.victim.launch("task._target_=train.main").returncode == 0
    script = (team.run / "job.sbatch").read_text()
    assert team.victim.run("mkdir", "-p", "data/code", "data/logs").returncode == 0
    there = team.attacker.python(
        "os.rename('runs', 'gone'); os.makedirs('runs/mine'); os.rename('data', 'runs/mine/1')\n"
        f"Path('runs/mine/1/code/json.py').write_text({team.evil()!r})\n"
        f"Path('runs/mine/1/supervisor.sh').write_text({supervisor()!r})"
    )
    assert there.returncode == 0, there.stderr
    assert team.run.stat().st_uid == (team.run / "code").stat().st_uid == team.victim.uid
    done = start(team, script)
    assert (done.returncode, f"{team.run} may be written by others" in done.stderr) == (69, True)
    code = (
        "from slurmopt.job import rank_args as call; call.PATIENCE = 0; import runpy; runpy.run_module('slurmopt.job')"
    )
    done = team.victim.run(sys.executable, "-c", code, str(team.run), "--function", "json.evil")
    assert (done.returncode, "may be written by others (mode 2775)" in done.stderr) == (69, True)
    assert team.trace.read_text() == ""
    assert not list((team.run / "logs").iterdir())


def test_a_job_runs_where_the_file_system_shows_no_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIMULATED: what a mount of SMB with dir_mode=0777 and file_mode=0777 answers; none can be had here."""
    seen = os.fstat
    tmp_path.chmod(0o777)
    monkeypatch.setattr(os, "fstat", lambda descriptor: os.stat_result((0o100777, *seen(descriptor)[1:])))
    monkeypatch.setattr(owner, "_shown", {})
    private.refuse_open_folder(tmp_path)
    monkeypatch.undo()
    with pytest.raises(JobError):
        private.refuse_open_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_job_goes_on_with_what_an_administrator_has_changed(team: Team) -> None:
    assert team.victim.launch("task._target_=train.main").returncode == 0
    config, changed, made = (team.run / name for name in ("config.yaml", "overrides.yaml", "cancelled"))
    for path in (changed, made):
        replace_text(path, "")
        assert (path.stat().st_uid, path.stat().st_gid) == (team.victim.uid, team.run.stat().st_gid)
    os.close(open_append(made.with_name("lock")))
    assert made.with_name("lock").stat().st_uid == team.victim.uid
    os.chown(config, 0, 0)  # as another program leaves it
    config.chmod(0o644)
    done = start(team, (team.run / "job.sbatch").read_text())
    assert done.returncode == 0, done.stderr
    assert outcome(team.run) == ["finished", "finished"]


def test_root_gives_away_no_file_that_has_another_name(team: Team) -> None:
    own = team.project.parent / "own"
    own.touch()
    os.link(own, team.project / "events.jsonl")
    os.close(open_append(team.project / "events.jsonl"))
    assert own.stat().st_uid == 0


def test_a_job_waits_for_a_node_that_cannot_tell_for_a_while_whose_its_folder_is(team: Team) -> None:
    assert team.victim.launch("task.command=[true]").returncode == 0
    script = (team.run / "job.sbatch").read_text()
    os.chown(team.run, team.attacker.uid, team.attacker.team)
    back = threading.Timer(2, os.chown, (team.run, team.victim.uid, team.victim.team))
    back.start()
    done = team.victim.run("bash", "-s", input=script)
    back.join()
    assert done.returncode == 0, done.stderr
    assert outcome(team.run) == ["finished", "finished"]


def test_a_rank_does_not_take_another_users_folder_for_its_run(team: Team) -> None:
    assert team.victim.launch("task._target_=train.main").returncode == 0
    swap(team)
    code = (
        "from slurmopt.job import rank_args as call; call.PATIENCE = 1; import runpy; runpy.run_module('slurmopt.job')"
    )
    done = team.victim.run(sys.executable, "-c", code, str(team.run), "--function", "json.evil")
    assert done.returncode == 69
    assert "nothing there is run" in done.stderr
    assert team.trace.read_text() == ""


def test_the_local_backend_starts_away_from_the_folder_that_one_stands_in(team: Team) -> None:
    """Where somebody stands is not who they trust: `slurmopt`, the program, does not import from there either."""
    home = team.project.parent / "home"
    home.mkdir()
    os.chown(home, team.victim.uid, team.victim.team)
    for name in ("json", "token", "argparse"):
        assert team.attacker.python(f"Path('{name}.py').write_text({team.evil()!r})").returncode == 0
    program = Path(sys.executable).with_name("slurmopt")
    words = ("launch", "launch.name=mine", "launch.id=1", "launch.backend=local", f"launch.folder={home}/runs")
    done = team.victim.run(str(program), *words, "task.command=[true]", f"environment.workdir={home}")
    assert done.returncode == 0, done.stderr
    assert team.trace.read_text() == ""


@pytest.fixture
def ended(team: Team) -> Path:
    """A run of the victim's that has ended."""
    assert team.victim.launch("task.command=[true]").returncode == 0
    return team.run


def test_retry_refuses_what_others_may_write_and_links(team: Team, ended: Path) -> None:
    ended.chmod(0o750)
    for name in ("job.sbatch", "config.yaml", "events.jsonl", "."):
        before = stat.S_IMODE((ended / name).stat().st_mode)
        (ended / name).chmod(0o770)
        done = team.victim.slurmopt("retry", "mine/1", "--finished")
        assert done.returncode == 2
        assert "may be written by others (mode 770), and would run as you" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        (ended / name).chmod(before)
    theirs = team.project / "theirs"
    shutil.copyfile(ended / "job.sbatch", theirs)
    os.chown(theirs, team.attacker.uid, team.attacker.team)
    (ended / "job.sbatch").unlink()
    (ended / "job.sbatch").symlink_to(theirs)
    os.lchown(ended / "job.sbatch", team.victim.uid, team.victim.team)
    done = team.victim.slurmopt("retry", "mine/1", "--finished")
    assert done.returncode == 2
    assert "job.sbatch belongs to another user (nobody)" in done.stderr


def test_retry_goes_on_where_nobody_else_reaches_what_a_default_acl_or_an_umask_lets_them_write(
    team: Team, ended: Path
) -> None:
    for name in ("code", "submitit"):
        (ended / name).mkdir(exist_ok=True)
        os.chown(ended / name, team.victim.uid, team.victim.team)
        (ended / name).chmod(0o775)
    (ended / "events.jsonl").chmod(0o664)
    done = team.victim.slurmopt("retry", "mine/1", "--finished")
    assert done.returncode == 0, done.stderr
    wait_for_the_second_end(ended)


def test_a_default_acl_gives_nobody_a_hand_in_a_run_of_a_group(team: Team) -> None:
    """The kernel takes the modes of such a folder's files from it, not from the umask."""
    entries = ((0x01, 7, -1), (0x04, 7, -1), (0x08, 7, team.victim.team), (0x10, 7, -1), (0x20, 5, -1))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(team.project, "system.posix_acl_default", acl)
    except OSError as error:
        pytest.skip(f"NOT TESTED: no ACLs here: {error.strerror}")
    (team.project / "lib" / "deep").mkdir(parents=True)
    (team.project / "lib" / "deep" / "big.py").touch()
    done = team.victim.launch("task.command=[true]", "launch.group_access=true", "environment.snapshot=copy")
    assert done.returncode == 0, done.stderr
    assert (team.run / "code" / "lib" / "deep" / "big.py").exists()
    assert writable(team.run / "code") == []
    assert stat.S_IMODE(team.run.stat().st_mode) == 0o2750


def test_a_link_of_ones_own_to_a_run_of_ones_own_is_the_run(team: Team, ended: Path) -> None:
    """A run that was moved to scratch, with a link where it was."""
    scratch = team.project.parent / "scratch"
    scratch.mkdir()
    scratch.chmod(0o1777)
    assert team.victim.run("mv", str(ended), str(scratch / "moved")).returncode == 0
    assert team.victim.run("ln", "-s", str(scratch / "moved"), str(ended)).returncode == 0
    done = team.victim.slurmopt("retry", "mine/1", "--finished")
    assert done.returncode == 0, done.stderr
    wait_for_the_second_end(ended)


def test_a_link_that_a_colleague_has_made_above_the_runs_is_followed(team: Team) -> None:
    assert team.victim.run("mkdir", "v3").returncode == 0
    assert team.attacker.run("ln", "-s", "v3", "current").returncode == 0
    place = f"launch.folder={team.project}/current/runs"
    done = team.victim.launch("task.command=[true]", place)
    assert done.returncode == 0, done.stderr
    done = team.victim.slurmopt("retry", "--folder", "current/runs", "mine/1", "--finished")
    assert done.returncode == 0, done.stderr
    wait_for_the_second_end(team.project / "v3" / "runs" / "mine" / "1")


@pytest.fixture
def hidden(team: Team) -> Iterator[Path]:
    """A folder on a file system that shows all as another user's, with the mode 777, as access points and mounts of SMB
    do."""
    there, shown = team.project.parent / "there", team.project.parent / "shown"
    for folder in (there, shown):
        folder.mkdir()
        folder.chmod(0o777)
    options = ("--force-user=games", "--perms=0777", "--chmod-ignore")
    done = subprocess.run(["bindfs", *options, str(there), str(shown)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT TESTED: no FUSE here: {done.stderr.strip()}")
    yield shown
    subprocess.run(["umount", "--lazy", str(shown)], check=True)


def test_where_the_file_system_does_not_show_owners_ones_own_runs_are_ones_own(team: Team, hidden: Path) -> None:
    done = team.victim.launch("task.command=[true]", f"launch.folder={hidden}/runs")
    run = hidden / "runs" / "mine" / "1"
    assert f"{run.parent}: this file system does not tell whose a file is" in done.stderr, done.stderr
    assert "job" in done.stdout
    deadline = time.monotonic() + 60
    while not any(event.get("outcome") == "finished" for event in events.read(run / "events.jsonl")):
        assert time.monotonic() < deadline, (run / "events.jsonl").read_text()
        time.sleep(0.05)
    team.victim.at = hidden
    for words in (("list",), ("status", "mine/1"), ("history", "mine/1")):
        done = team.victim.slurmopt(*words)
        assert "finished" in done.stdout
        assert "another user" not in done.stdout
    for words in (("retry", "mine/1", "--finished"), ("cancel", "mine/1"), ("tend",)):
        done = team.victim.slurmopt(*words)
        assert "belongs to another user" not in done.stderr
        assert "written by" not in done.stderr
        assert "Traceback" not in done.stderr
    # How many tries the journal tells of: a retry is submitted as the launch was.
    assert [event["event"] for event in events.read(run / "events.jsonl")].count("submitting") == 2
    assert not [path for path in hidden.rglob(".owner.*")]


def test_retry_is_not_led_by_a_link_that_anybody_can_have_made(team: Team, ended: Path) -> None:
    team.project.chmod(0o1777)
    assert team.attacker.run("ln", "-s", str(ended.parents[1]), "theirs").returncode == 0
    done = team.victim.slurmopt("retry", "--folder", "theirs", "mine/1", "--finished")
    assert done.returncode == 2
    assert "theirs is a link of another user (nobody)" in done.stderr
    assert [event["event"] for event in events.read(ended / "events.jsonl")].count("submitting") == 1


def test_what_belongs_to_somebody_else_is_neither_retried_nor_cancelled_nor_tended(team: Team, ended: Path) -> None:
    ended.chmod(0o755)
    for command in ("retry", "cancel"):
        done = team.attacker.slurmopt(command, "mine/1")
        assert done.returncode == 2
        assert "belongs to another user" in done.stderr
    done = team.attacker.launch("task.command=[true]")
    assert done.returncode == 2
    assert "belongs to another user" in done.stderr


@pytest.mark.parametrize("name", ["mine/1", "mine", "1", "runs/mine/1", "mine/1/3", None])
def test_a_run_that_is_closed_to_others_is_told_with_its_owner(team: Team, ended: Path, name: str | None) -> None:
    owner = pwd.getpwuid(team.victim.uid).pw_name
    said = f"permission denied: {ended} belongs to another user ({owner}, mode {ended.stat().st_mode & 0o7777:o})"
    for command in (["status"], ["logs"], ["checkpoint", "list"], ["checkpoint", "fetch", "--to", "copy"], ["retry"]):
        done = team.attacker.slurmopt(*command, *([name] if name else []))
        assert done.returncode == 2
        assert done.stderr.startswith(f"slurmopt: error: {said}"), done.stderr
        assert done.stderr.count("\n") == 1
    assert "permission denied" in team.attacker.slurmopt("list").stderr


def test_checkpoints_that_are_closed_to_others_are_not_taken_for_none(team: Team) -> None:
    assert team.victim.launch("task._target_=train.main", "launch.group_access=true").returncode == 0
    (team.run / "checkpoints").chmod(0o700)
    done = team.attacker.slurmopt("checkpoint", "list", "mine/1")
    assert done.returncode == 1
    assert done.stderr.startswith(f"slurmopt: shared: permission denied: {team.run}/checkpoints belongs to another ")
    assert "no complete checkpoint" not in done.stderr


def plant(team: Team, config: str = "{}") -> Path:
    """A run of the attacker's, newer than all, beside those of the victim."""
    place = team.project / "runs" / "mine"
    place.chmod(0o2775)  # as an earlier umask may have left it
    there = team.attacker.python(
        f"run = Path({str(place / '2')!r}); run.mkdir(); (run / 'config.yaml').write_text({config!r})\n"
        f'(run / \'events.jsonl\').write_text(\'{{"time": 9999999999, "event": "created", "name": "mine"}}\\n\')'
    )
    assert there.returncode == 0, there.stderr
    return place / "2"


def test_a_newer_run_of_somebody_elses_is_not_taken_for_ones_own_and_says_whose_it_is(team: Team, ended: Path) -> None:
    plant(team)
    for command in ("status", "history", "logs"):
        for word in ([], ["mine"]):
            shown = team.victim.slurmopt(command, *word)
            assert shown.returncode == 0, shown.stderr
            assert "another user" not in shown.stdout
    for command in ("status", "history"):
        assert "another user (nobody)" in team.victim.slurmopt(command, "mine/2").stdout
    for words in (("list",), ("status", "--all")):
        lines = team.victim.slurmopt(*words).stdout.splitlines()
        assert ["another user (nobody)" in line for line in lines[1:]] == [True, False]
    shown = data_of(team.victim.slurmopt("list", "--json").stdout)
    assert [run["owner"] for run in shown] == ["nobody", None]
    assert "another user" in team.attacker.slurmopt("status", "mine/1").stdout or ended.stat().st_mode & 0o077 == 0
    assert "another user" not in team.attacker.slurmopt("status", "mine/2").stdout


def test_somebody_elses_config_is_filled_in_from_itself_alone(team: Team, ended: Path) -> None:
    saved = team.project / "saved"
    there = team.attacker.python(f"Path({str(saved)!r}).mkdir()")
    assert there.returncode == 0, there.stderr
    bomb = {f"b{level}": f"${{b{level + 1}}}" * 40 for level in range(30)}
    config = {
        "paths": {"ckpt": "${paths.base}/saved", "base": str(team.project)}, "env": "${oc.env:KEY}", **bomb,
        "loop": "${loop}", "train": {"save": 500},
        "checkpoint": {
            "shared": {"path": "${paths.ckpt}", "keep": "${train.keep}"},
            "every": "${train.save}",
            "scratch": {"path": "/tmp/${env}"},
        },
    }  # fmt: skip
    team.victim.environment = {"KEY": "hidden-word"}
    run = plant(team, json.dumps(config))
    done = team.victim.slurmopt("checkpoint", "list", "mine/2", "--tier", "shared")
    assert (done.returncode, done.stderr) == (0, "mine/2 has no complete checkpoint\n")
    done = team.victim.slurmopt("checkpoint", "verify", "mine/2")
    assert "scratch: config.yaml belongs to another user (nobody)" in done.stderr
    assert "has no complete checkpoint on shared" in done.stderr
    for place in ("/tmp/${env}", "/tmp/${oc.env:KEY}", "/tmp/${b0}", "/tmp/${loop}", "${checkpoint}"):
        config["checkpoint"] = {"shared": {"path": place}}
        (run / "config.yaml").write_text(json.dumps(config))
        done = team.victim.slurmopt("checkpoint", "list", "mine/2")
        assert f"your environment variables are not filled in there: {place}" in done.stderr
        assert "hidden-word" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_what_somebody_elses_config_names_gets_neither_credentials_nor_the_environment(team: Team, ended: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        team.victim.environment = {
            "KEY": "hidden-word", "AWS_ACCESS_KEY_ID": "AKIAVICTIM", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip
        for url in ("s3://bucket/${oc.env:KEY}", "s3://bucket/plain"):
            s3 = {"url": url, "endpoint": endpoint, "region": "eu-central-1"}
            shared = {"path": "/tmp/${oc.env:KEY}"}
            run = plant(team, json.dumps({"checkpoint": {"s3": s3, "shared": shared}}))
            to = team.project / "fetched"
            for words in (("list",), ("verify",), ("show",), ("fetch", "--to", str(to)), ("list", "--tier", "s3")):
                name, *options = words
                done = team.victim.slurmopt("checkpoint", name, "mine/2", *options)
                assert done.returncode in (1, 2)
                assert "s3: config.yaml belongs to another user (nobody)" in done.stderr
                assert "hidden-word" not in done.stdout + done.stderr
                assert "Traceback" not in done.stderr
                with pytest.raises(BlockingIOError):
                    server.accept()
            shutil.rmtree(run)
        assert "slurmopt checkpoint … s3://bucket/plain/mine/2" in done.stderr
        # The same in a config of one's own is asked, with what the environment says.
        config = json.dumps({"checkpoint": {"s3": {**s3, "url": "s3://bucket/${oc.env:KEY}"}}})
        (ended / "config.yaml").write_text(config)
        asking = threading.Thread(target=team.victim.slurmopt, args=("checkpoint", "list", "mine/1", "--tier", "s3"))
        asking.start()
        server.settimeout(60)
        connection, _ = server.accept()
        with connection:
            connection.settimeout(60)
            assert b"hidden-word" in connection.recv(65536)
            connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")  # so that it is not asked again
        server.close()
        asking.join()
