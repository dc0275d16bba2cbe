"""Sweeps on a real Slurm: each point once, whatever happens to launcher, nodes and array tasks on the way."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from launching.conftest import COMMAND, Project
from launching.test_exactly_once import require_strace
from private_cluster import PrivateCluster, unprivileged_user, wait_until

from slurmopt.grid import submissions
from slurmopt.grid.records import Records, readable
from slurmopt.run_folder import events
from slurmopt.run_folder.sweep_layout import SweepFolder

TRAIN = '''
"""Points that finish, fail, crash and wait for a word."""
import os
import time
from pathlib import Path

import slurmopt


def note(config):
    """Each start of user code leaves a line: a point that ran twice would have two."""
    with open("started", "a") as file:
        file.write(f"{slurmopt.current_run().folder.path.name} {os.getpid()}\\n")


def short(config):
    note(config)
    print("seed", config.seed)
    slurmopt.progress(1, total=1, loss=config.lr * (1 + config.seed))
    return {"score": config.lr + config.seed}


def until_told(config):
    """The first attempt goes on until it is told to stop; a later one finishes."""
    note(config)
    saved = slurmopt.current_run().folder.path / "saved"
    if not saved.exists():
        step = 0
        while not slurmopt.stop_requested():
            step += 1
            slurmopt.progress(step)
            time.sleep(0.05)
        saved.write_text("yes")
        raise slurmopt.Requeue("saved")
    return {"score": config.seed}


def held(config):
    note(config)
    while not Path("go").exists():
        time.sleep(0.1)
    return {"score": config.seed}


def held_alone(config):
    note(config)
    while not Path(f"go-{config.seed}").exists():
        time.sleep(0.1)


def some_fail(config):
    note(config)
    if config.seed == 1 and not Path("mended").exists():
        raise ValueError(f"no luck with seed {config.seed}")
    if config.seed == 2 and not Path("mended").exists():
        os.kill(os.getpid(), 11)
    return {"score": config.seed}


for each in (short, held, some_fail):
    each.makes_process_group = True  # runs of their own do without torch, too
'''

EXPERIMENT = """
# @package _global_
task: {_target_: points.short}
resources: {time: 5m, cpus_per_task: 1}
restart: {budgets: {killed: 0}}
lr: 0.1
seed: 0
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    """Its arrays have at most six tasks."""
    with PrivateCluster.running("--nodes", "3", "--gpus", "0", "--max-array-size", "6") as made:
        yield made


@pytest.fixture
def site(project: Project) -> Project:
    (project.path / "points.py").write_text(TRAIN)
    folder = project.path / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "points.yaml").write_text(textwrap.dedent(EXPERIMENT))
    return project


def launch(site: Project, *words: str) -> tuple[SweepFolder, dict[str, Any]]:
    answer = site.submit("-m", "+experiment=points", *words)
    return SweepFolder(Path(answer["run"])), answer


def status(site: Project, sweep: SweepFolder) -> dict[str, Any]:
    (told,) = data_of(site.slurmopt("status", str(sweep.path), "--json").stdout)
    assert isinstance(told, dict)
    return told


def finish(site: Project, sweep: SweepFolder, timeout: float = 90, **counts: int) -> None:
    """Waits until so many points are in each state."""
    wait_until(lambda: status(site, sweep)["states"] == counts, timeout, f"{counts}", lambda: status(site, sweep))


def starts(site: Project) -> list[str]:
    """The points whose user code began, sorted; twice where it began twice."""
    path = site.path / "started"
    return sorted(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else []


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def numbers(*points: int) -> list[str]:
    return [f"{point:05d}" for point in points]


@pytest.mark.releases
@pytest.mark.parametrize("packing", [[], ["sweep.per_task=4", "sweep.side_by_side=2"]], ids=["each a task", "packed"])
def test_each_point_finishes_once_in_a_folder_of_its_own(site: Project, packing: list[str]) -> None:
    sweep, answer = launch(site, "lr=0.1,0.2", "seed=range(4)", *packing)
    assert answer["runs"] == 8
    finish(site, sweep, finished=8)
    assert starts(site) == numbers(*range(8))
    for number in range(8):
        point = sweep.point(number)
        (end,) = (event for event in Records(sweep).journal(number) if event["event"] == "end")
        lr, seed = (0.1, 0.2)[number // 4], number % 4
        assert end["result"] == {"score": lr + seed}
        assert end["metrics"]["loss"] == pytest.approx(lr * (1 + seed))
        most = 0 if packing else 4
        wait_until(lambda: len(files(point.path)) <= most, 30, "its files are gone", lambda: files(point.path))  # noqa: B023
    if packing:
        looks_the_same_without_its_folder(site, sweep)
    table = data_of(site.slurmopt("results", str(sweep.path), "--sort", "score", "--json").stdout)
    assert [row["point"] for row in table["rows"]] == [0, 4, 1, 5, 2, 6, 3, 7]


def looks_the_same_without_its_folder(site: Project, sweep: SweepFolder) -> None:
    assert len(files(sweep.task(0, 0).path)) <= 10
    label = f"{sweep.name}/{sweep.id}/5"
    (told,) = data_of(site.slurmopt("status", label, "--json").stdout)
    assert (told["state"], told["attempts"], told["folder"]) == ("finished", 1, str(sweep.task(0, 1).path))
    page = site.slurmopt("status", label).stdout
    assert f"log        {sweep.task(0, 1).path}/points.log" in page
    assert site.slurmopt("logs", label).stdout == "seed 1\n"
    assert "attempt 0 on node" in site.slurmopt("history", label).stdout
    history = data_of(site.slurmopt("history", label, "--json").stdout)
    assert (history["folder"], history["state"]) == (str(sweep.task(0, 1).path), "finished")
    assert [one["cause"] for one in history["attempts"]] == ["finished"]
    assert "3 finished" in site.slurmopt("status", f"{sweep.path}/3-5").stdout
    (listed,) = [one for one in data_of(site.slurmopt("list", "--json").stdout) if one["id"] == sweep.id]
    assert listed["states"] == {"finished": 8}
    assert not site.slurmopt("tend").stdout
    assert "has ended already" in site.slurmopt("cancel", label, check=False).stderr
    assert "nothing to retry" in site.slurmopt("retry", label, check=False).stderr
    assert not sweep.point(5).path.exists()


def test_array_tasks_of_before_an_upgrade_run_beside_those_of_a_retry_after_it(site: Project) -> None:
    """A retry by a newer slurmopt replaces supervisor.sh; the script of tasks that are queued finds its own."""
    sweep, answer = launch(site, "seed=0,1", "+resources.extra.begin=now+1hour")
    text = sweep.run.supervisor.read_text()
    newer = "import sys; from pathlib import Path; from slurmopt.run_folder import layout, supervisor_file as file; "
    newer += "file.write(layout.RunFolder(Path(sys.argv[1])), file.read(layout.RunFolder(Path(sys.argv[1])))"
    newer += " + 'exit 1 # of another version\\n', keep=True)"
    site.run([sys.executable, "-c", newer, str(sweep.path)])
    assert sweep.run.supervisor.read_text() != text
    (kept,) = sweep.path.glob("supervisor-*.sh")
    site.run(["scontrol", "update", f"JobId={answer['job_ids'][0]}", "StartTime=now"])
    finish(site, sweep, finished=2)
    assert starts(site) == numbers(0, 1)
    assert kept.read_text() == text


def test_a_sweep_larger_than_an_array_goes_on_by_itself(site: Project) -> None:
    """MaxArraySize is 6 here: 20 points are four arrays, of which the first is submitted from the terminal."""
    sweep, answer = launch(site, "seed=range(20)")
    assert len(answer["job_ids"]) == 1
    assert answer["waiting"] == 14
    finish(site, sweep, timeout=150, finished=20)
    assert starts(site) == numbers(*range(20))
    assert str(submissions.read(sweep.sweep_file)[0].points) == "0-5"
    assert not sweep.more.exists()


def test_a_launcher_killed_anywhere_and_started_again_submits_each_point_once(site: Project) -> None:
    words = ["-m", "+experiment=points", "seed=range(9)", "launch.id=mine", "launch.name=again"]
    sweep = SweepFolder(site.path / "runs" / "again" / "mine")
    for moment in ("points.json", "sweep.json"):
        launcher = subprocess.Popen(
            [*COMMAND, "launch", *words],
            cwd=site.path,
            user=unprivileged_user(),
            env={
                **site.environment(),
                "XDG_CACHE_HOME": str(site.path / "cache"),
                "XDG_STATE_HOME": str(site.path / "state"),
            },
            stdout=subprocess.DEVNULL,
        )
        wait_until(lambda: (sweep.path / moment).exists() or launcher.poll() is not None, 60, moment)  # noqa: B023
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    site.launch(*words)
    site.launch(*words)
    finish(site, sweep, finished=9)
    assert starts(site) == numbers(*range(9))


def test_a_launch_is_repeated_with_the_id_that_was_made_for_it(site: Project) -> None:
    sweep, answer = launch(site, "seed=range(3)")
    _, repeated = launch(site, "seed=range(3)", f"launch.id={sweep.id}")
    assert (repeated["run"], repeated["job_ids"]) == (str(sweep.path), answer["job_ids"])
    finish(site, sweep, finished=3)


def test_failed_points_are_told_apart_and_tried_again(site: Project) -> None:
    sweep, _ = launch(site, "task._target_=points.some_fail", "seed=range(4)", "sweep.per_task=4")
    finish(site, sweep, finished=2, failed=1, killed=1)
    said = site.slurmopt("status", str(sweep.path)).stdout
    assert "no luck with seed" in said
    wait_until(lambda: not list(sweep.points.iterdir()), 30, "their folders are gone")
    assert "ValueError: no luck with seed 1" in site.slurmopt("logs", f"{sweep.path}/1").stdout
    assert "ValueError: no luck with seed 1" in site.slurmopt("logs", str(sweep.path), "--errors").stdout
    (site.path / "mended").touch()
    site.slurmopt("retry", str(sweep.path), "--failed")
    finish(site, sweep, finished=4)
    assert starts(site) == numbers(0, 1, 1, 2, 2, 3)
    assert str(submissions.read(sweep.sweep_file)[-1].points) == "1-2"
    wait_until(lambda: not list(sweep.points.iterdir()), 30, "their folders are gone again")
    assert readable(sweep.point(1)).attempts() == [0, 1]
    assert "no luck" in site.slurmopt("logs", f"{sweep.path}/1", "--attempt", "0").stdout


def retry_on_a_disk_that_fills(site: Project, sweep: SweepFolder) -> None:
    """A retry that needs two array jobs and cannot announce the second, which is the journal's fourth write; and the
    one that brings it to its end."""
    require_strace()
    inject = ["inject=write:error=ENOSPC:when=4", "-P", str(sweep.events)]
    faulty = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=write", "-e", *inject]
    environment = {"XDG_CACHE_HOME": str(site.path / "cache"), "XDG_STATE_HOME": str(site.path / "state")}
    done = site.run([*faulty, *COMMAND, "retry", str(sweep.path), "--failed"], check=False, env=environment)
    assert done.returncode == 1
    job = submissions.read(sweep.sweep_file)[2].job
    assert f"job {job} is submitted, but {sweep.events}: no space left on device; no further job was" in done.stderr
    assert f"once it can be written, repeat slurmopt retry {sweep.name}/{sweep.id}" in done.stderr
    site.slurmopt("retry", str(sweep.path), "--failed")


def test_a_retry_whose_second_array_job_is_refused_names_the_first(site: Project) -> None:
    sweep, _ = launch(site, "seed=range(8)", "resources.partition=down", "launch.check=false")
    site.slurmopt("cancel", str(sweep.path))
    once = site.path / "once"
    once.mkdir()
    once.chmod(0o777)
    refuse = 'echo "sbatch: error: enough for today" >&2; exit 1'
    first = f"mkdir {once}/taken 2>/dev/null || {{ {refuse}; }}"
    (once / "sbatch").write_text(f'#!/bin/bash\n{first}\nexport PATH="${{PATH#*:}}"\nexec sbatch "$@"\n')
    (once / "sbatch").chmod(0o755)
    done = site.slurmopt("retry", str(sweep.path), check=False, PATH=f"{once}:{os.environ['PATH']}")
    assert done.returncode == 2
    (job,) = [one.job for one in submissions.read(sweep.sweep_file)[1:]]
    assert f"job {job} is submitted, and the next array job is not: " in done.stderr
    assert "enough for today" in done.stderr
    assert f"; repeat slurmopt retry {sweep.name}/{sweep.id}: it never submits twice" in done.stderr
    assert "submitted as job" in site.slurmopt("retry", str(sweep.path)).stdout
    assert [str(one.points) for one in submissions.read(sweep.sweep_file)] == ["0-5", "0-5", "6-7"]
    site.slurmopt("cancel", str(sweep.path))


def test_points_that_are_tried_again_keep_the_numbers_of_their_array_tasks(site: Project) -> None:
    """Of two array jobs, also where the disk is full between them; scripts from before slurmopt go by
    SLURM_ARRAY_TASK_ID."""
    command = 'echo "$SLURMOPT_POINT $SLURM_ARRAY_TASK_ID" >> ids; [ -e mended ] || ! [[ $SLURMOPT_POINT =~ [1347] ]]'
    (site.path / "old-style.sh").write_text(command)
    words = ["task._target_=null", "task.command=[bash,old-style.sh]", "seed=range(8)"]
    sweep, _ = launch(site, *words)
    finish(site, sweep, finished=4, failed=4)
    (site.path / "mended").touch()
    retry_on_a_disk_that_fills(site, sweep)
    job = submissions.read(sweep.sweep_file)[2].job
    assert site.slurmopt("status", f"{job}_4").stdout.startswith(f"{sweep.name}/{sweep.id}/4")
    finish(site, sweep, finished=8)
    lines = [line.split() for line in (site.path / "ids").read_text().splitlines()]
    assert sorted(lines) == sorted([str(one), str(one % 6)] for one in [0, 1, 1, 2, 3, 3, 4, 4, 5, 6, 7, 7])


PLANT = """
import os, sys
from pathlib import Path
sweep, own = map(Path, sys.argv[1:])
os.rename(sweep.parents[1], sweep.parents[1].with_name("gone"))
for run in ("points/00000", "tasks/0-0", "tasks/0-0/points/00000"):
    for name in ("events.jsonl", "logs/attempt-0/rank-0.log", "heartbeat/attempt-0/stop", "heartbeat/attempt-0/slurm",
                 "heartbeat/attempt-0/rank-0.json", "heartbeat/attempt-0/verdict"):
        (sweep / run / name).parent.mkdir(parents=True, exist_ok=True)
        (sweep / run / name).symlink_to(own)
(sweep / "points/00001").mkdir()
for name in ("more", "sweep.json", "cancelled", "points.json"):
    os.mkfifo(sweep / name)
for path in (sweep, *sweep.rglob("*")):
    if not path.is_symlink():
        path.chmod(0o777)
"""


@pytest.mark.parametrize("packing", [[], ["sweep.per_task=2"]], ids=["each a task", "packed"])
def test_an_array_task_writes_nothing_to_what_takes_the_place_of_its_sweep(site: Project, packing: list[str]) -> None:
    """A member of a group that may write the project folder puts a tree of links and FIFOs there."""
    attacker = pwd.getpwnam("nobody")
    shutil.chown(site.path, group=attacker.pw_gid)
    site.path.chmod(0o2775)
    (site.path / "runs").mkdir()
    shutil.chown(site.path / "runs", site.user)
    sweep, answer = launch(site, "task._target_=points.until_told", "seed=range(2)", *packing)
    wait_until(lambda: numbers(0)[0] in starts(site), 60, "the point has begun", lambda: starts(site))
    own = site.path / "bashrc"
    own.write_text("own\n")
    shutil.chown(own, site.user)
    plant = [sys.executable, "-c", PLANT, str(sweep.path), str(own)]
    subprocess.run(plant, check=True, user=attacker.pw_uid, group=attacker.pw_gid, extra_groups=[], umask=0)
    before = sorted((str(path), path.lstat().st_ino) for path in sweep.path.rglob("*"))

    site.cluster.run(["scancel", "--batch", "--signal=USR1", *answer["job_ids"]], site.user)

    wait_until(lambda: not site.cluster.run(["squeue", "--noheader", "--user", site.user]).stdout, 60, "the job's end")
    assert own.read_text() == "own\n"
    after = sorted((str(path), path.lstat().st_ino) for path in sweep.path.rglob("*") if path.name != "saved")
    assert after == before  # but for what the training itself writes
    gone = SweepFolder(site.path / "gone" / sweep.name / sweep.id)
    logs = [log.read_text() for log in gone.logs.glob("job-*_*.log")]
    said = f"something else is at {sweep.path} now: nothing of it is used"
    assert [text.count(said) for text in logs] == [1] * len(logs)
    assert "Traceback" not in "".join(logs)
    run = gone.task(0, 0) if packing else gone.point(0)
    told = [event["event"] for event in events.read(run.events)]
    assert told[-2:] == ["end", "requeue-refused"], "".join(logs)


@pytest.mark.releases
@pytest.mark.parametrize("packing", [[], ["sweep.per_task=3"]], ids=["each a task", "packed"])
def test_an_array_task_that_is_requeued_goes_on_with_its_points(site: Project, packing: list[str]) -> None:
    sweep, answer = launch(site, "task._target_=points.until_told", "seed=range(3)", *packing)
    (job,) = answer["job_ids"]
    first = 1 if packing else 3  # one after the other in a pack
    wait_until(lambda: len(starts(site)) == first, 60, "user code runs")
    tasks = [f"{job}_{task}" for task in range(1 if packing else 3)]
    site.cluster.run(["scontrol", "requeue", ",".join(tasks)])
    if packing:
        for more in (3, 5):  # the first finishes in its second attempt, and the next is told to stop in its first
            wait_until(lambda: len(starts(site)) == more, 60, "the next point runs")  # noqa: B023
            site.cluster.run(["scontrol", "requeue", *tasks])
    finish(site, sweep, finished=3)
    assert starts(site) == numbers(0, 0, 1, 1, 2, 2)
    for number in range(3):
        assert readable(sweep.point(number)).attempts() == [0, 1]


@pytest.mark.parametrize("packing", [[], ["sweep.per_task=3"]], ids=["each a task", "packed"])
def test_an_array_task_that_is_requeued_after_its_points_finished_runs_none_again(
    site: Project, packing: list[str]
) -> None:
    sweep, answer = launch(site, "seed=range(3)", *packing)
    (job,) = answer["job_ids"]
    finish(site, sweep, finished=3)
    tasks = [f"{job}_{task}" for task in range(1 if packing else 3)]
    runs = [sweep.task(0, 0)] if packing else [sweep.point(point) for point in range(3)]
    wait_until(lambda: not site.cluster.run(["squeue", "-h", "-j", job]).stdout.strip(), 60, "the array tasks are over")
    site.cluster.run(["scontrol", "requeue", ",".join(tasks)])

    def ends() -> list[int]:
        return [sum(event["event"] == "end" for event in events.read(run.events)) for run in runs]

    wait_until(lambda: set(ends()) == {2}, 60, "they have started again", ends)
    finish(site, sweep, finished=3)
    assert starts(site) == numbers(0, 1, 2)
    for task in tasks:  # what waits for them by afterok may start
        wait_until(lambda: "JobState=COMPLETED" in _shown(site, task), 60, task, lambda: _shown(site, task))  # noqa: B023
    table = data_of(site.slurmopt("results", str(sweep.path), "--json").stdout)
    assert [row["metrics"]["score"] for row in table["rows"]] == [0.1, 1.1, 2.1]


def _shown(site: Project, job: str) -> str:
    return site.cluster.run(["scontrol", "show", "job", job]).stdout


def test_a_node_that_dies_in_the_middle_loses_no_point(site: Project) -> None:
    packing = ["sweep.per_task=6", "sweep.side_by_side=6"]
    sweep, answer = launch(site, "task._target_=points.held", "seed=range(6)", *packing)
    (job,) = answer["job_ids"]
    wait_until(lambda: len(starts(site)) == 6, 60, "user code runs")
    (node, *_) = site.cluster.run(["squeue", "-h", "-j", job, "-o", "%N", "-t", "R"]).stdout.split()
    site.cluster.give_up_node(node)
    (site.path / "go").touch()
    try:
        finish(site, sweep, timeout=120, finished=6)
    finally:
        site.cluster.restore_node(node)
    assert set(starts(site)) == set(numbers(*range(6)))
    for number in range(6):
        ends = [event for event in Records(sweep).journal(number) if event["event"] == "end"]
        assert [end["outcome"] for end in ends if end["next"] is None] == ["finished"]


def test_points_that_slurm_gives_up_are_brought_back_by_tend(site: Project) -> None:
    sweep, answer = launch(site, "task._target_=points.held", "seed=range(3)", "monitor.heartbeat=1s")
    (job,) = answer["job_ids"]
    wait_until(lambda: len(starts(site)) == 3, 60, "user code runs")
    site.cluster.run(["scontrol", "update", f"JobId={job}", "Requeue=0"])
    (node, *_) = site.cluster.run(["squeue", "-h", "-j", job, "-o", "%N", "-t", "R"]).stdout.split()
    site.cluster.give_up_node(node)
    (site.path / "go").touch()
    try:
        wait_until(lambda: not site.cluster.run(["squeue", "-h", "-j", job]).stdout.strip(), 90, "Slurm gave it up")
        said: list[str] = []

        def tended() -> bool:
            """Slurm need not tell of all of the node's array tasks at the same moment."""
            said.append(site.slurmopt("tend").stdout)
            return status(site, sweep)["states"] == {"finished": 3}

        wait_until(tended, 150, "tend brings all back", lambda: status(site, sweep))
        assert any("submitted again" in answer for answer in said)
    finally:
        site.cluster.restore_node(node)
    assert "submitted" not in site.slurmopt("tend").stdout


@pytest.mark.releases
def test_cancelled_points_do_not_start_and_the_others_go_on(site: Project) -> None:
    words = ["task._target_=points.held", "seed=range(8)", "sweep.at_once=2"]
    sweep, _ = launch(site, *words)
    wait_until(lambda: len(starts(site)) == 2, 60, "two run")
    site.slurmopt("cancel", f"{sweep.path}/1,4-6")
    (site.path / "go").touch()
    finish(site, sweep, finished=4, cancelled=4)
    assert starts(site) == numbers(0, 1, 2, 3, 7)


def test_a_point_that_is_cancelled_and_retried_while_its_pack_runs_is_the_newer_array_tasks(site: Project) -> None:
    sweep, _ = launch(site, "task._target_=points.held_alone", "seed=range(3)", "sweep.per_task=3")
    wait_until(lambda: len(starts(site)) == 1, 60, "the first runs")
    site.slurmopt("cancel", f"{sweep.path}/2")
    site.slurmopt("retry", f"{sweep.path}/2")
    wait_until(lambda: starts(site) == numbers(0, 2), 60, "the last runs in an array task of its own")
    for seed in (0, 1):
        (site.path / f"go-{seed}").touch()
    journal = sweep.task(0, 0).events
    wait_until(lambda: any(event["event"] == "end" for event in events.read(journal)), 60, "the pack is over")
    (site.path / "go-2").touch()
    finish(site, sweep, finished=3)
    assert starts(site) == numbers(0, 1, 2)
    assert readable(sweep.point(2)).attempts() == [0]


@pytest.mark.releases
def test_what_follows_starts_once_all_points_have_ended(site: Project) -> None:
    then = "+experiment=points task._target_=points.short launch.name=evaluation seed=77"
    sweep, _ = launch(site, "task._target_=points.some_fail", "seed=range(3)", f"sweep.then='{then}'")
    finish(site, sweep, finished=1, failed=1, killed=1)
    (after,) = (site.path / "runs" / "evaluation").iterdir()
    site.wait_for({"run": str(after)}, "finished")
    begun = [line.split()[0] for line in (site.path / "started").read_text().splitlines()]
    assert begun[-1] == after.name
    assert sorted(begun[:-1]) == numbers(0, 1, 2)


def test_a_run_waits_for_those_it_comes_after(site: Project) -> None:
    words = ["+experiment=points", "task._target_=points.held"]
    first = site.submit(*words, "launch.name=first")
    wait_until(lambda: starts(site), 60, "the first runs")
    sweep, _ = launch(site, "seed=range(2)", f"launch.after=[{first['run']}]")
    last = site.submit("+experiment=points", "launch.name=last", f"launch.after=['{sweep.path}',first]")
    assert status(site, sweep)["states"] == {"pending": 2}
    assert "Dependency" in site.cluster.run(["squeue", "-h", "-j", last["job_ids"][0], "-o", "%r"]).stdout
    (site.path / "go").touch()
    site.wait_for(last, "finished")
    order = [line.split()[0] for line in (site.path / "started").read_text().splitlines()]
    assert (order[0], order[-1]) == (Path(first["run"]).name, Path(last["run"]).name)
    after = site.submit("+experiment=points", "launch.name=after", "launch.after=[first]")  # it has finished long since
    site.wait_for(after, "finished")


def test_nothing_waits_for_a_run_that_has_failed(site: Project) -> None:
    failed = site.submit("+experiment=points", "task._target_=points.some_fail", "seed=1", "launch.name=failed")
    site.wait_for(failed, "failed")
    done = site.launch("+experiment=points", "launch.after=[failed]", check=False)
    assert done.returncode == 2
    assert "launch.after" in done.stderr
    assert "after_failure" in done.stderr
    anyway = site.submit("+experiment=points", "launch.after=[failed]", "launch.after_failure=true")
    site.wait_for(anyway, "finished")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sede=1,2"], "sede"),
        (["seed=1,1"], "same point twice"),
        (["seed=[]"], ""),
        (["resources.nodes=1,2"], "resources.nodes"),
        (["seed=1,2", "sweep.per_task=2", "resources.nodes=2"], "sweep.per_task"),
        (["seed=1,2", "sweep.then=+experiment=nope"], "sweep.then"),
        (["seed=1,2", "launch.backend=submitit"], "launch.backend"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_submitted(site: Project, words: list[str], said: str) -> None:
    done = site.launch("-m", "+experiment=points", *words, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (site.path / "runs").exists()


def test_hostile_values_stay_values(site: Project) -> None:
    nasty = "$(touch ../broken); `id` ' \\\" | \n é"
    (site.path / "points.jsonl").write_text("\n".join(json.dumps({"+text": text}) for text in (nasty, "../../x")))
    sweep, _ = launch(site, "sweep.points=points.jsonl", "sweep.folder='${text}'", "sweep.per_task=2")
    finish(site, sweep, finished=2)
    from omegaconf import OmegaConf

    assert OmegaConf.load(readable(sweep.point(0)).config)["text"] == nasty
    assert not list(site.path.rglob("broken"))
    for link in sweep.by_name.iterdir():
        assert link.resolve().parent == sweep.points


def test_the_login_side_writes_few_files_however_many_points(site: Project) -> None:
    sweep, _ = launch(site, "lr=0.1,0.2", "seed=range(500000)", "launch.check=false", "sweep.at_once=1")
    site.cluster.run(["scancel", "--user", site.user])
    mine = [
        path
        for path in sweep.path.rglob("*")
        if path.is_file() and "logs" not in path.parts and "points" not in path.parts
    ]
    assert len(mine) <= 10, mine
    assert sum(os.path.getsize(path) for path in mine) < 100_000


def test_an_id_that_is_taken_by_other_points_is_refused(site: Project) -> None:
    (site.path / "points.csv").write_text("seed\n1\n2\n")
    words = ["-m", "+experiment=points", "sweep.points=points.csv", "launch.id=mine"]
    site.launch(*words)
    assert "not again" in site.launch(*words).stdout
    (site.path / "points.csv").write_text("seed\n1\n2\n3\n")
    done = site.launch(*words, check=False)
    assert done.returncode == 2
    assert "other points" in done.stderr
    shuffled = ["-m", "+experiment=points", "seed=shuffle(range(5))", "launch.id=shuffled"]
    site.launch(*shuffled)
    assert "not again" in site.launch(*shuffled).stdout
