"""Runs that Slurm does not bring back, on a real Slurm, brought back by `slurmopt tend`: each once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from json_answer import data_of
from private_cluster import PrivateCluster, clean_environment, new_folder, wait_until

from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder

ROOT = Path(__file__).parents[2]
TEND = [sys.executable, "-m", "slurmopt", "tend"]
HELD = 'until [ -e "$SLURMOPT_RUN_FOLDER/go" ]; do sleep 0.1; done'


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    with PrivateCluster.running("--nodes", "2", "--gpus", "0") as made:
        made.conf.write_text(made.conf.read_text().replace("JobRequeue=1", "JobRequeue=0"))
        made.run(["scontrol", "reconfigure"])
        made.run(["scontrol", "update", "PartitionName=preempt", "PreemptMode=CANCEL", "GraceTime=0"])
        yield made


class Site:
    """A folder to launch from."""

    def __init__(self, cluster: PrivateCluster, path: Path) -> None:
        self.cluster, self.path = cluster, path
        self.env = {**clean_environment(), "SLURM_CONF": str(cluster.conf), "PYTHONPATH": str(ROOT)}
        self.env["XDG_CACHE_HOME"] = str(path / "cache")
        self.env["XDG_STATE_HOME"] = str(path / "state")

    def run(self, argv: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            argv, env=self.env, cwd=self.path, capture_output=True, text=True, timeout=90, **options
        )

    def launch(self, name: str, command: str, *words: str) -> tuple[RunFolder, str, str]:
        """The run of `bash -c command`, its job, and what was said on standard error."""
        words = (f"task.command=[bash,-c,'{command}']", f"launch.name={name}", "launch.json=true", *words)
        done = self.run([sys.executable, "-m", "slurmopt.launch", "resources.time=5m", *words])
        assert done.returncode == 0, done.stderr
        answer = data_of(done.stdout)
        return RunFolder(Path(answer["run"])), answer["job_ids"][0], done.stderr

    def jobs(self, run: RunFolder) -> list[tuple[str, str]]:
        """All jobs of the run that Slurm knows: id and state."""
        said = self.cluster.run(["squeue", "-h", "--states=all", "-o", "%i %T %o"]).stdout.splitlines()
        rows = [line.split(" ", 2) for line in said]
        return [(job, state) for job, state, script in rows if script.strip() == str(run.script)]

    def tend(self, *words: str) -> list[dict[str, object]]:
        """One look, at what squeue says now."""
        shutil.rmtree(self.path / "cache", ignore_errors=True)
        done = self.run([*TEND, "--json", *words])
        assert done.returncode == 0, done.stderr
        found: list[dict[str, object]] = data_of(done.stdout)
        return found

    def tend_until(self, run: RunFolder, did: str) -> dict[str, object]:
        """Looks as cron would until the run has been `did`."""
        deeds: list[dict[str, object]] = []

        def looked() -> bool:
            deeds.extend(self.tend(run.path.as_posix()))
            return bool(deeds)

        wait_until(looked, 60, f"{run.id} is {did}", lambda: self.jobs(run))
        assert [deed["did"] for deed in deeds] == [did]
        return deeds[0]

    def kill_a_tend_at(self, submission: str) -> None:
        self.kill_at(TEND, submission)

    def kill_at(self, argv: list[str], submission: str) -> None:
        """Kills a command, with all that it started, whose `sbatch` has done `submission` and has not answered."""
        folder, reached = self.path / "bin", self.path / "reached"
        folder.mkdir(exist_ok=True)
        (folder / "sbatch").write_text(f"#!/bin/bash\n{submission}\ntouch {reached}\nexec sleep 60\n")
        (folder / "sbatch").chmod(0o755)
        env = {**self.env, "PATH": f"{folder}:{self.env['PATH']}"}
        command = subprocess.Popen(argv, env=env, cwd=self.path, start_new_session=True)
        wait_until(reached.exists, 60, "it submits")
        os.killpg(command.pid, signal.SIGKILL)
        command.wait()
        reached.unlink()

    def until_attempt(self, run: RunFolder, number: int, timeout: float = 60) -> None:
        wait_until(
            lambda: any(one["event"] == "attempt" and one["attempt"] == number for one in events.read(run.events)),
            timeout,
            f"attempt {number}",
            lambda: f"{self.jobs(run)}\n{run.events.read_text()}",
        )


@pytest.fixture
def site(cluster: PrivateCluster) -> Iterator[Site]:
    path = new_folder()
    yield Site(cluster, path)
    cluster.run(["scancel", "--me"])
    shutil.rmtree(path, ignore_errors=True)  # a rank that is just ending may still write


def in_job(site: Site, command: str, says: str) -> str:
    """A word of the launch: in the job one of Slurm's commands only says that."""
    folder = site.path / "in-job"
    folder.mkdir(exist_ok=True)
    (folder / command).write_text(f"#!/bin/bash\necho '{command}: error: {says}' >&2\nexit 1\n")
    (folder / command).chmod(0o755)
    return f"environment.setup=['export PATH={folder}:$PATH']"


@pytest.mark.releases
def test_a_job_that_preemption_cancels_comes_back(site: Site) -> None:
    """Slurm's controller is too busy to take the job's own requeue."""
    silent = in_job(site, "scontrol", "Unable to contact slurm controller")
    words = ("resources.partition=preempt", "resources.nodes=2", "resources.exclusive=true", silent)
    run, first, said = site.launch("mine", HELD, *words)
    assert "PreemptMode=CANCEL" in said
    assert f"-m slurmopt tend --folder {site.path}/runs" in said
    site.until_attempt(run, 0)
    urgent = ("--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 5")
    site.cluster.run(["sbatch", *urgent], cwd=site.path)
    wait_until(lambda: (first, "PREEMPTED") in site.jobs(run), 60, "it is preempted", lambda: site.jobs(run))
    deed = site.tend_until(run, "submitted")
    assert deed["cause"] == "preemption"
    (run.path / "go").touch()
    site.until_attempt(run, 1)
    wait_until(lambda: (deed["job"], "COMPLETED") in site.jobs(run), 60, "it finishes", lambda: site.jobs(run))
    assert len(site.jobs(run)) == 2
    assert site.tend() == []


@pytest.mark.releases
def test_a_site_without_requeue_by_default_brings_the_run_back_in_its_job(site: Site) -> None:
    run, job, _ = site.launch("mine", f"{HELD}; exit $((75 - 75 * (SLURMOPT_ATTEMPT > 0)))")
    assert "JobRequeue              = 0" in site.cluster.run(["scontrol", "show", "config"]).stdout
    site.until_attempt(run, 0)
    (run.path / "go").touch()
    site.until_attempt(run, 1)
    wait_until(lambda: site.jobs(run) == [(job, "COMPLETED")], 60, "it finishes", lambda: site.jobs(run))


@pytest.mark.releases
def test_where_requeue_is_refused_the_job_submits_the_run_itself(site: Site) -> None:
    run, first, _ = site.launch("mine", f"{HELD}; exit $((75 - 75 * (SLURMOPT_ATTEMPT > 0)))")
    site.until_attempt(run, 0)
    site.cluster.run(["scontrol", "update", f"JobId={first}", "Requeue=0"])
    (run.path / "go").touch()
    site.until_attempt(run, 1)
    (second,) = [job for job, _ in site.jobs(run) if job != first]
    wait_until(lambda: (second, "COMPLETED") in site.jobs(run), 60, "it finishes", lambda: site.jobs(run))
    assert len(site.jobs(run)) == 2
    assert f"submitted again as job {second}" in run.job_log(first).read_text()


def test_a_tend_that_is_killed_around_sbatch_leaves_one_job(site: Site) -> None:
    """The job may neither be requeued nor submit; one tend is killed before Slurm has the new job, one after."""
    closed = in_job(site, "sbatch", "Access/permission denied")
    run, first, _ = site.launch("mine", f"{HELD}; exit $((75 - 75 * (SLURMOPT_ATTEMPT > 0)))", closed)
    site.until_attempt(run, 0)
    site.cluster.run(["scontrol", "update", f"JobId={first}", "Requeue=0"])
    (run.path / "go").touch()
    wait_until(lambda: bool(site.tend("--dry-run")), 60, "it is found", lambda: run.events.read_text())
    assert "`slurmopt tend` on a login node does it" in run.job_log(first).read_text()
    site.kill_a_tend_at("true")
    assert [job for job, _ in site.jobs(run)] == [first]
    site.kill_a_tend_at(f'{shutil.which("sbatch")} "$@"')
    again = [subprocess.Popen(TEND, env=site.env, cwd=site.path) for _ in range(2)]
    assert [one.wait(60) for one in again] == [0, 0]
    site.until_attempt(run, 1)
    assert len(site.jobs(run)) == 2


def noted_once(site: Site, retry: list[str], script: Path) -> str:
    """The job of a retry that is killed once slurmctld has it: a tend notes it, and no other comes."""
    waiting = ["squeue", "-h", "--states=PENDING", "-o", "%A %o"]
    site.kill_at([*retry, "+resources.extra.begin=now+10days"], f'{shutil.which("sbatch")} "$@"')

    def listed() -> list[str]:
        rows = site.cluster.run(waiting).stdout.splitlines()
        return sorted(row.split()[0] for row in rows if str(site.path) in row)  # a job of another test may come back

    (job,) = listed()
    assert str(script) in site.cluster.run(["scontrol", "show", "job", job]).stdout
    assert [(deed["did"], deed["job"]) for deed in site.tend()] == [("noted", job)]
    assert site.tend() == []
    site.run(retry)
    assert listed() == [job]
    return job


@pytest.mark.parametrize("before", ["failed", "finished", "cancelled"])
def test_the_job_of_a_retry_that_was_killed_is_noted(site: Site, before: str) -> None:
    run, first, _ = site.launch("mine", HELD if before == "cancelled" else f"exit {int(before == 'failed')}")
    slurmopt = [sys.executable, "-m", "slurmopt"]
    if before == "cancelled":
        site.until_attempt(run, 0)
        assert site.run([*slurmopt, "cancel", "mine"]).returncode == 0
    over = ("COMPLETED", "FAILED", "CANCELLED")
    wait_until(lambda: site.jobs(run)[0][1] in over, 60, "its end", lambda: site.jobs(run))
    finished = ["--again"] if before == "finished" else []
    job = noted_once(site, [*slurmopt, "retry", str(run.path), *finished], run.script)
    (told,) = data_of(site.run([*slurmopt, "status", "mine", "--json"]).stdout)
    assert (told["state"], told["jobs"]) == ("pending", [first, job])
    assert site.run([*slurmopt, "cancel", "mine"]).returncode == 0
    wait_until(lambda: (job, "CANCELLED") in site.jobs(run), 60, "it is cancelled", lambda: site.jobs(run))


def test_the_array_job_of_a_sweeps_retry_that_was_killed_is_noted(site: Site) -> None:
    words = ("task.command=[bash,-c,'exit 1']", "launch.name=grid", "+n=0,1", "launch.json=true", "resources.time=5m")
    done = site.run([sys.executable, "-m", "slurmopt.launch", "-m", *words])
    assert done.returncode == 0, done.stderr
    sweep = Path(data_of(done.stdout)["run"])
    slurmopt = [sys.executable, "-m", "slurmopt"]

    def states() -> dict[str, int]:
        (told,) = data_of(site.run([*slurmopt, "status", "grid", "--json"]).stdout)
        found: dict[str, int] = told["states"]
        return found

    wait_until(lambda: states() == {"failed": 2}, 60, "both points fail", states)
    job = noted_once(site, [*slurmopt, "retry", "grid"], sweep / "job.sbatch")
    told = [event for event in events.read(sweep / "events.jsonl", "submitted")]
    assert [str(event["job"]) for event in told][1:] == [job]
    assert states() == {"pending": 2}
    assert site.run([*slurmopt, "cancel", "grid"]).returncode == 0
