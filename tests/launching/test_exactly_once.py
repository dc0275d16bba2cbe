"""A slurmctld that is down, an answer that is lost, a launcher that is killed: in the end there is exactly one job."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from private_cluster import wait_until

TASK = ("task.command=[sleep, 60]", "resources.time=5m", "launch.check=false", "launch.json=true")


def jobs_of(project: Any) -> list[str]:
    listed: list[str] = project.run(["squeue", "--me", "-h", "--states=pending,running", "-o", "%i"]).stdout.split()
    return listed


def begin(project: Any, *words: str, before: Sequence[str] = (), **env: str) -> subprocess.Popen[str]:
    """A launch in the background, behind the words `before`."""
    environment = {
        **project.environment(),
        "XDG_CACHE_HOME": str(project.path / "cache"),
        "XDG_STATE_HOME": str(project.path / "state"),
        **env,
    }
    return subprocess.Popen(
        [*before, sys.executable, "-m", "slurmopt", "launch", *TASK, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=project.path,
        env=environment,
        user=project.user,
        extra_groups=[],
    )


def events(project: Any, name: str) -> list[str]:
    found = list((project.path / "runs" / name).glob("*/events.jsonl"))
    return [json.loads(line)["event"] for path in found for line in path.read_text().splitlines()]


def test_a_controller_that_is_down_leaves_nothing_half_done(project: Any) -> None:
    with project.cluster.without_controller():
        refused = project.launch("task.command=[true]", "launch.name=down", check=False)
        unchecked = project.launch("task.command=[true]", "launch.name=down", "launch.check=false", check=False)
    for done in (refused, unchecked):
        assert done.returncode == 1
        assert "does not answer" in done.stderr or "Unable to contact" in done.stderr
        assert len([line for line in done.stderr.splitlines() if line.startswith("slurmopt: error:")]) == 1
        assert "Traceback" not in done.stderr
    assert not list((project.path / "runs").glob("*/*"))


def test_an_answer_that_is_lost_is_looked_up_and_not_tried_again(project: Any) -> None:
    """slurmctld is stopped with sbatch's request in its hands, and goes on when sbatch has given up."""
    project.cluster.pause_controller()
    launch = begin(project, "launch.name=lost")
    try:
        wait_until(lambda: "submitting" in events(project, "lost"), 20, "the launch submits")
        sbatch = ["pgrep", "--exact", "--euid", project.user, "sbatch"]
        wait_until(lambda: subprocess.run(sbatch, capture_output=True).returncode == 0, 20, "sbatch runs")
        wait_until(lambda: subprocess.run(sbatch, capture_output=True).returncode != 0, 90, "sbatch gives up")
    finally:
        project.cluster.resume_controller()
    out, err = launch.communicate(timeout=120)
    assert launch.returncode == 0, err
    (job,) = jobs_of(project)
    assert data_of(out)["job_ids"] == [job]
    assert "waiting for Slurm to take the job" in err


@pytest.mark.parametrize("moment", ["submitting", "submitted"])
def test_a_launcher_that_is_killed_can_be_repeated(project: Any, moment: str) -> None:
    """Killed once with the request at slurmctld, once after the answer; the repetition finds the job."""
    words = (f"launch.name={moment}", "launch.id=one")
    if moment == "submitting":
        project.cluster.pause_controller()
    launch = begin(project, *words)
    try:
        wait_until(lambda: moment in events(project, moment), 20, f"the launch is {moment}")
        if moment == "submitting":
            sbatch = ["pgrep", "--exact", "--euid", project.user, "sbatch"]
            wait_until(lambda: subprocess.run(sbatch, capture_output=True).returncode == 0, 20, "sbatch runs")
        launch.send_signal(signal.SIGKILL)
        launch.communicate()
    finally:
        if moment == "submitting":
            project.cluster.resume_controller()
    wait_until(lambda: len(jobs_of(project)) == 1, 60, "the killed launcher's sbatch got through")
    answer = data_of(project.launch(*TASK, *words, timeout=180).stdout)
    assert answer["job_ids"] == jobs_of(project)


@pytest.mark.parametrize(("calls", "error"), [("flock", "ENOSYS"), ("symlink,symlinkat", "EPERM")])
def test_where_the_file_system_has_no_locks_or_no_links_launches_at_once_submit_one_job(
    project: Any, calls: str, error: str
) -> None:
    """The calls fail, and sbatch takes long enough for all to come to it."""
    require_strace()
    without = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}"]
    slow = wrapped(project, "sbatch", 'sleep 3; exec sbatch "$@"')
    words = (f"launch.name=without-{calls[:4]}", "launch.id=one")
    launches = [begin(project, *words, before=without, **slow) for _ in range(3)]
    answers = [launch.communicate(timeout=120) for launch in launches]
    assert [launch.returncode for launch in launches] == [0, 0, 0], answers
    assert len({out for out, _ in answers}) == 1
    (job,) = jobs_of(project)
    assert project.run(["scancel", job]).returncode == 0


def test_a_launch_that_is_repeated_while_the_killed_ones_sbatch_lives_waits_for_it(project: Any) -> None:
    """A site's wrapper holds sbatch back until a file is there."""
    held = wrapped(project, "sbatch", 'until [ -e go ]; do sleep 0.1; done; exec sbatch "$@"')
    words = ("launch.name=orphan", "launch.id=one")
    launch = begin(project, *words, **held)
    wait_until(lambda: "submitting" in events(project, "orphan"), 20, "the launch submits")
    wrapper = ["pgrep", "--parent", str(launch.pid)]
    wait_until(lambda: subprocess.run(wrapper, capture_output=True).returncode == 0, 20, "sbatch is held back")
    launch.kill()
    launch.wait()
    again = begin(project, *words)
    with pytest.raises(subprocess.TimeoutExpired):
        again.communicate(timeout=6)  # a look at squeue or three later it must not have submitted another
    assert not jobs_of(project)
    (project.path / "go").touch()
    out, err = again.communicate(timeout=180)
    assert again.returncode == 0, err
    assert data_of(out)["job_ids"] == jobs_of(project)


def test_two_launches_of_one_id_at_once_submit_one_job(project: Any) -> None:
    launches = [begin(project, "launch.name=race", "launch.id=one") for _ in range(3)]
    answers = [launch.communicate(timeout=120) for launch in launches]
    assert [launch.returncode for launch in launches] == [0, 0, 0], answers
    assert len({out for out, _ in answers}) == 1
    assert len(jobs_of(project)) == 1
    assert len(list(Path(project.path / "runs" / "race").iterdir())) == 1


def test_a_launch_that_another_of_its_id_has_overtaken_submits_nothing(project: Any) -> None:
    """It is stopped when it has made the run folder and is about to claim it."""
    require_strace()
    words = ("launch.name=overtaken", "launch.id=one")
    run = project.path / "runs" / "overtaken" / "one"
    seen = project.path / "seen"  # a state of the process would not tell: it stops at every system call for a moment
    stop = ["strace", "-f", "-qq", "-o", str(seen), *of_held(run / ".submission"), "-e", "trace=openat"]
    first = begin(project, *words, before=[*stop, "-e", "inject=openat:signal=SIGSTOP:when=1"])
    wait_until(lambda: seen.exists() and "stopped by SIGSTOP" in seen.read_text(), 60, "it stops")
    answer = data_of(project.launch(*TASK, *words).stdout)
    subprocess.run(["pkill", "-CONT", "--parent", str(first.pid)], check=True)
    out, err = first.communicate(timeout=180)
    assert first.returncode == 0, err
    assert data_of(out) == answer
    assert answer["job_ids"] == jobs_of(project)
    assert events(project, "overtaken").count("submitting") == 1


FAILS = "task.command=[bash,-c,'while [ -e hold ]; do sleep 0.2; done; exit 3']"
"""Fails, once there is no file `hold`."""
KILLED_BEFORE_SBATCH = "kill -9 $PPID"
KILLED_AFTER_SBATCH = 'sbatch "$@" > /dev/null; kill -9 $PPID'
DIES_AFTER_SBATCH = 'sbatch "$@" > /dev/null; kill -9 $$'


def of_held(path: Path) -> list[str]:
    """strace's words for a file of a run folder that the process keeps open, by whatever descriptor."""
    return [word for number in range(3, 50) for word in ("-P", f"/proc/self/fd/{number}/{path.name}")]


def require_strace() -> None:
    if shutil.which("strace") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("strace is missing; scripts/test installs it")
        pytest.skip("FAULTS OF SYSTEM CALLS ARE NOT TESTED: strace is missing (apt-get install strace)")


def wrapped(project: Any, name: str, text: str, **more: str) -> dict[str, str]:
    """A PATH on which one of Slurm's commands is a script, `text`, that finds the real one behind it; so are `more`."""
    folder = project.path / f"{name}-wrapped"
    folder.mkdir(exist_ok=True)
    for command, script in {name: text, **more}.items():
        (folder / command).write_text(f'#!/bin/bash\nexport PATH="${{PATH#*:}}"\n{script}\n')
        (folder / command).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def submitted(project: Any, run: Path) -> set[str]:
    """All jobs that Slurm has had of the run or sweep."""
    listed = project.run(["squeue", "--me", "-h", "--states=all", "-o", "%A %F %o"]).stdout.splitlines()
    rows = [line.split() for line in listed]
    return {array for _, array, script, *_ in rows if script == str(run / "job.sbatch")}


def states(project: Any, sweep: Path) -> dict[str, int]:
    shutil.rmtree(project.path / "cache", ignore_errors=True)  # what squeue says now
    (told,) = data_of(project.slurmopt("status", str(sweep), "--json").stdout)
    found: dict[str, int] = told["states"]
    return found


def failed_sweep(project: Any, name: str) -> Path:
    words = ("-m", FAILS, "+seed=1,2", "resources.time=5m", "restart.budgets.killed=0", "launch.check=false")
    sweep = Path(project.submit(*words, f"launch.name={name}")["run"])
    wait_until(lambda: states(project, sweep) == {"failed": 2}, 60, "both points have failed")
    return sweep


def test_a_retry_of_a_sweep_that_is_killed_after_sbatch_is_repeated_once_its_points_have_ended(project: Any) -> None:
    """Its points have failed again, so that they look as if it had never been."""
    sweep = failed_sweep(project, "twice")
    retry = ("retry", str(sweep), "--more-time", "2")
    killed = project.slurmopt(*retry, check=False, **wrapped(project, "sbatch", KILLED_AFTER_SBATCH))
    assert killed.returncode == -signal.SIGKILL
    journals = [sweep / "points" / point / "events.jsonl" for point in ("00000", "00001")]
    wait_until(lambda: all(path.read_text().count('"end"') == 2 for path in journals), 60, "both have failed again")
    before = submitted(project, sweep)
    assert len(before) == 2
    dry = project.slurmopt(*retry, "--dry-run")
    assert "#SBATCH --time=00:10:00" in dry.stdout
    assert "resources.time 5m → 00:10:00" in dry.stderr
    again = project.slurmopt(*retry).stdout
    (job,) = submitted(project, sweep) - before
    assert f"2 points submitted as job {job}; resources.time 5m → 00:10:00" in again
    assert "#SBATCH --time=00:10:00" in (sweep / "job.sbatch").read_text()
    wait_until(lambda: states(project, sweep) == {"failed": 2}, 60, "both have failed once more")
    assert "00:10:00 → 00:20:00" in project.slurmopt(*retry).stdout  # this one is another


def test_a_sweep_that_was_killed_before_sbatch_is_submitted_by_the_repeated_launch_and_not_by_a_third(
    project: Any,
) -> None:
    task = ("-m", "task.command=[sleep, 60]", "+seed=1,2", "resources.time=5m", "launch.check=false")
    words = (*task, "launch.name=repeated", "launch.id=one")
    killed = project.launch(*words, check=False, **wrapped(project, "sbatch", KILLED_BEFORE_SBATCH))
    assert killed.returncode == -signal.SIGKILL
    assert project.launch(*words).stdout.startswith("Submitted repeated/one, 2 points, as job ")
    again = project.launch(*words).stdout
    assert again.startswith("Submitted before, and not again: repeated/one, 2 points, as job ")
    assert len(submitted(project, project.path / "runs" / "repeated" / "one")) == 1


def test_what_a_killed_retry_submitted_is_seen_and_cancelled(project: Any) -> None:
    sweep = failed_sweep(project, "seen")
    (project.path / "hold").touch()
    retry = ("retry", str(sweep), "--more-time", "2")
    killed = project.slurmopt(*retry, check=False, **wrapped(project, "sbatch", KILLED_AFTER_SBATCH))
    assert killed.returncode == -signal.SIGKILL
    wait_until(lambda: states(project, sweep) == {"running": 2}, 60, "both points run", lambda: states(project, sweep))
    (job,) = {each.partition("_")[0] for each in jobs_of(project)}
    other = project.slurmopt("retry", str(sweep), "--more-time", "3", check=False)
    assert other.returncode == 2
    assert f"job {job} of an earlier retry has points 0-1, without what is typed now" in other.stderr
    again = project.slurmopt(*retry).stdout
    assert f"2 points submitted before, and not again: job {job}; resources.time 5m → 00:10:00" in again
    assert "#SBATCH --time=00:10:00" in (sweep / "job.sbatch").read_text()
    assert "2 points are cancelled" in project.slurmopt("cancel", str(sweep)).stdout
    wait_until(lambda: not jobs_of(project), 60, "no array task is left")
    (project.path / "hold").unlink()
    assert "2 points submitted as job" in project.slurmopt("retry", str(sweep)).stdout


def test_a_launch_that_goes_on_with_a_run_and_is_killed_after_sbatch_is_repeated(project: Any) -> None:
    answer = project.submit(FAILS, "resources.time=5m", "launch.check=false", "launch.name=goes-on")
    project.wait_for(answer, "failed")
    (project.path / "hold").touch()
    words = (f"launch.run={answer['run']}", "launch.check=false")
    killed = project.launch(*words, check=False, **wrapped(project, "sbatch", KILLED_AFTER_SBATCH))
    assert killed.returncode == -signal.SIGKILL
    (job,) = jobs_of(project)
    again = project.launch(*words)
    assert f"Submitted before, and not again: goes-on/{Path(answer['run']).name} as job {job}" in again.stdout
    assert jobs_of(project) == [job]
    assert "is running" in project.launch(*words, check=False).stderr


def test_a_sweep_that_was_cancelled_before_slurm_had_it_starts_by_a_retry(project: Any) -> None:
    words = ("-m", FAILS, "+seed=1,2", "resources.time=5m", "launch.check=false", "launch.name=early")
    killed = project.launch(*words, check=False, **wrapped(project, "sbatch", KILLED_BEFORE_SBATCH))
    assert killed.returncode == -signal.SIGKILL
    (sweep,) = (project.path / "runs" / "early").glob("[!.]*")
    assert "2 points are cancelled" in project.slurmopt("cancel", str(sweep)).stdout
    assert "2 points submitted as job" in project.slurmopt("retry", str(sweep), "--more-time", "2").stdout
    assert len(submitted(project, sweep)) == 1
    assert "#SBATCH --time=00:10:00" in (sweep / "job.sbatch").read_text()
    wait_until(lambda: states(project, sweep) == {"failed": 2}, 60, "both have run", lambda: states(project, sweep))


def test_a_retry_that_is_killed_after_sbatch_is_no_second_one_when_it_is_repeated(project: Any) -> None:
    """While its job lives, another retry is refused; once it has failed again, the same one doubles the time once."""
    words = (FAILS, "resources.time=5m", "restart.budgets.killed=0", "launch.check=false", "launch.name=again")
    answer = project.submit(*words)
    run = Path(answer["run"])
    project.wait_for(answer, "failed")
    (project.path / "hold").touch()
    retry = ("retry", str(run), "--more-time", "2")
    killed = project.slurmopt(*retry, check=False, **wrapped(project, "sbatch", KILLED_AFTER_SBATCH))
    assert killed.returncode == -signal.SIGKILL
    wait_until(lambda: len(jobs_of(project)) == 1, 60, "its job is there")
    (job,) = jobs_of(project)
    other = project.slurmopt("retry", str(run), "restart.budgets.hang=7", check=False)
    assert other.returncode == 2
    assert f"job {job} of an earlier retry is " in other.stderr
    assert "with resources.time 5m → 00:10:00, and not with what is typed now" in other.stderr
    assert f"first: slurmopt cancel again/{run.name}" in other.stderr
    (project.path / "hold").unlink()
    wait_until(lambda: (run / "events.jsonl").read_text().count('"end"') == 2, 60, "it has failed again")
    before = submitted(project, run)
    said = project.slurmopt(*retry).stdout
    (job,) = submitted(project, run) - before
    assert f"submitted as job {job}; resources.time 5m → 00:10:00" in said
    assert "time: 00:10:00" in (run / "config.yaml").read_text()
    assert "--time=00:10:00" in (run / "job.sbatch").read_text()
    assert not (run / ".unfinished").exists()


@pytest.mark.parametrize("fault", ["EIO", "ENOSPC"])
def test_a_retry_whose_job_cannot_be_noted_keeps_what_slurm_has(project: Any, fault: str) -> None:
    """The journal's third write is the one that tells of the job."""
    require_strace()
    words = (FAILS, "resources.time=5m", "restart.budgets.killed=0", "launch.check=false", f"launch.name={fault}")
    answer = project.submit(*words)
    run = Path(answer["run"])
    project.wait_for(answer, "failed")
    retry = ["retry", str(run), "--more-time", "2", "resources.partition=down"]
    inject = [f"inject=write:error={fault}:when=3", "-P", str(run / "events.jsonl")]
    faulty = ["strace", "-f", "-o", "/dev/null", "-e", "trace=write", "-e", *inject]
    environment = {"XDG_CACHE_HOME": str(project.path / "cache"), "XDG_STATE_HOME": str(project.path / "state")}
    done = project.run([*faulty, sys.executable, "-m", "slurmopt", *retry], check=False, env=environment)
    (job,) = jobs_of(project)
    assert done.returncode == 1
    assert f"job {job} is submitted, but {run}/events.jsonl could not be written" in done.stderr
    assert f"repeat slurmopt retry {fault}/{run.name}" in done.stderr
    assert project.run(["squeue", "-h", "-j", job, "-o", "%l"]).stdout.strip() == "10:00"
    assert f"submitted before, and not again: job {job}" in project.slurmopt(*retry).stdout
    assert jobs_of(project) == [job]
    assert "time: 00:10:00" in (run / "config.yaml").read_text()
    assert "--time=00:10:00" in (run / "job.sbatch").read_text()
    assert project.status(str(run))["job"] == job
    project.slurmopt("cancel", str(run))
    assert not jobs_of(project)


def test_an_error_before_sbatch_leaves_nothing_and_asks_nobody_to_look_for_a_job(project: Any) -> None:
    """sbatch cannot be started with so long a word; the script cannot be read."""
    require_strace()
    short = {"PATH": "/usr/bin:/bin"}  # without folders that the user may not enter, which hide the reason
    words = (*TASK, f"resources.comment={'x' * 131_045}", "launch.name=early")
    long = project.slurmopt("launch", *words, check=False, **short)
    assert long.stderr == "slurmopt: error: sbatch cannot be started: argument list too long\n"
    script = project.path / "runs" / "early" / "one" / "job.sbatch"
    inject = ["inject=openat:error=EIO", *of_held(script)]
    faulty = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=openat", "-e", *inject]
    launch = begin(project, "launch.name=early", "launch.id=one", before=faulty)
    _, err = launch.communicate(timeout=180)
    assert err == f"slurmopt: error: {script}: input/output error; nothing was submitted\n"
    assert not (project.path / "runs" / "early").exists()
    assert not jobs_of(project)


def test_an_sbatch_that_dies_after_slurm_took_the_job_is_looked_up(project: Any) -> None:
    """It ends by a signal, and says nothing: that is no refusal."""
    answer = project.submit(*TASK, "launch.name=dies", timeout=180, **wrapped(project, "sbatch", DIES_AFTER_SBATCH))
    assert answer["job_ids"] == jobs_of(project)
    assert Path(answer["run"], "events.jsonl").exists()


def test_a_squeue_that_is_killed_is_no_proof_that_there_is_no_job(project: Any) -> None:
    """The answer to sbatch is lost, and so is that to the first question for its job."""
    lost = wrapped(
        project,
        "sbatch",
        'sbatch "$@" > /dev/null; touch ill; kill -9 $$',
        squeue='rm ill 2> /dev/null && kill -9 $$; exec squeue "$@"',
    )
    answer = project.submit(*TASK, "launch.name=ill", timeout=180, **lost)
    assert not (project.path / "ill").exists()
    assert answer["job_ids"] == jobs_of(project)
    assert Path(answer["run"], "events.jsonl").exists()


def test_a_squeue_that_lists_nothing_makes_no_job_a_lost_one(project: Any) -> None:
    """A wrapper of the site answers with nothing and exit status 0 while a run and a sweep wait."""
    words = ("resources.partition=down", "launch.check=false", "resources.time=5m", FAILS)
    run = Path(project.submit(*words, "launch.name=waits")["run"])
    sweep = Path(project.submit("-m", "+seed=1,2", *words, "launch.name=wait")["run"])
    queued = submitted(project, run), submitted(project, sweep)
    before = (run / "events.jsonl").read_text()
    time.sleep(11)  # what was noted a moment ago counts for longer than what squeue says
    mute = wrapped(project, "squeue", "exit 0")

    def say(*words: str) -> str:
        shutil.rmtree(project.path / "cache", ignore_errors=True)
        done = project.slurmopt(*words, check=False, **mute)
        return str(done.stdout + done.stderr)

    assert "waits: pending" in say("status", str(run)).replace(f"/{run.name}", "")
    assert "2 pending" in say("status", str(sweep))
    assert say("tend") == ""
    assert "is pending" in say("retry", str(run))
    assert "2 pending" in say("retry", str(sweep))
    assert (run / "events.jsonl").read_text() == before
    assert (submitted(project, run), submitted(project, sweep)) == queued
    assert "is cancelled" in say("cancel", str(run))
    assert "2 points are cancelled" in say("cancel", str(sweep))
    assert not jobs_of(project)


def test_a_lost_answer_is_looked_up_where_squeue_lists_nothing(project: Any) -> None:
    words = ("launch.name=mute", "launch.id=one", "resources.partition=down")
    begin(project, *words, **wrapped(project, "sbatch", KILLED_AFTER_SBATCH)).communicate(timeout=180)
    mute = wrapped(project, "squeue", "exit 0")
    answer = data_of(project.launch(*TASK, *words, **mute).stdout)
    assert answer["job_ids"] == jobs_of(project)


def test_a_run_whose_end_was_noted_wrongly_is_not_retried_beside_its_job(project: Any) -> None:
    run = Path(project.submit(*TASK, "resources.partition=down", "launch.name=wrong")["run"])
    end = {"time": time.time(), "event": "end", "attempt": 0, "outcome": "killed", "cause": "killed", "next": None}
    with (run / "events.jsonl").open("a") as journal:
        journal.write(json.dumps(end) + "\n")
    (job,) = jobs_of(project)
    done = project.slurmopt("retry", str(run), check=False)
    assert done.returncode == 2
    assert f"job {job} of wrong/{run.name} is pending; first: scancel {job}" in done.stderr
    assert jobs_of(project) == [job]


def test_a_cancel_that_was_killed_before_scancel_is_repeated(project: Any) -> None:
    """Its points are noted as cancelled by then, and their array tasks still wait."""
    words = ("-m", FAILS, "+seed=1,2", "resources.time=5m", "resources.partition=down", "launch.check=false")
    sweep = Path(project.submit(*words, "launch.name=fourth")["run"])
    killed = project.slurmopt("cancel", str(sweep), check=False, **wrapped(project, "scancel", "kill -9 $PPID"))
    assert killed.returncode == -signal.SIGKILL
    assert len(jobs_of(project)) == 1
    assert "2 points are cancelled" in project.slurmopt("cancel", str(sweep)).stdout
    assert not jobs_of(project)
    assert "ended already: 2 cancelled" in project.slurmopt("cancel", str(sweep), check=False).stderr
