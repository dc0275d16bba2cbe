"""The same against a real Slurm: with accounting, without, and with a controller that is away."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from private_cluster import PrivateCluster, new_folder, require_slurm, wait_until

from slurmopt.config.resources import Resources
from slurmopt.errors import RunError, SlurmRefused, SlurmUnreachable
from slurmopt.run_folder import events
from slurmopt.slurm import client
from slurmopt.slurm.cluster.estimate import estimate, estimated_start
from slurmopt.slurm.cluster.facts import facts
from slurmopt.slurm.cluster.limits import findings
from slurmopt.slurm.environment import clean_environment
from slurmopt.slurm.find_job import find_job, find_token
from slurmopt.slurm.hostlist import expand
from slurmopt.slurm.queue import queue
from slurmopt.slurm.states import is_over, plain_state
from slurmopt.slurm.submit import sbatch_once

SLEEP = "#!/bin/bash\n#SBATCH --output=/dev/null\n#SBATCH --mem=100\nsleep 300\n"


def _cluster(*options: str) -> Iterator[PrivateCluster]:
    require_slurm(accounting="--accounting" in options)
    folder = new_folder()
    try:
        cluster = PrivateCluster.start(folder, "--nodes", "2", "--gpus", "4", "--max-array-size", "101", *options)
        yield cluster
        cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def plain_cluster() -> Iterator[PrivateCluster]:
    """Two nodes, no accounting."""
    yield from _cluster()


@pytest.fixture(scope="module")
def accounting_cluster() -> Iterator[PrivateCluster]:
    """Two nodes and a database."""
    yield from _cluster("--accounting")


@pytest.fixture
def cluster(plain_cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch) -> PrivateCluster:
    monkeypatch.setenv("SLURM_CONF", str(plain_cluster.conf))
    return plain_cluster


@pytest.fixture
def accounting(accounting_cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch) -> PrivateCluster:
    monkeypatch.setenv("SLURM_CONF", str(accounting_cluster.conf))
    return accounting_cluster


def submit(*options: str, script: str = SLEEP) -> str:
    output = client.run(["sbatch", "--parsable", *options], 60, clean_environment(os.environ, script), script)
    return output.strip()


def cancel(job: str) -> None:
    client.run(["scancel", job], 60)


@pytest.mark.releases
def test_facts(cluster: PrivateCluster) -> None:
    found = facts()
    assert (found.cluster, found.max_array_size, found.accounting, found.accounts) == ("private", 101, False, None)
    main = next(partition for partition in found.partitions if partition.default)
    assert (main.name, main.state, main.max_time, main.default_time) == ("main", "up", 86400, 3600)
    assert [(expand(group.nodes), group.count, group.usable) for group in main.groups] == [(["node1", "node2"], 2, 2)]
    assert main.groups[0].gpus == {"h100": 4}
    assert "down" in {partition.state for partition in found.partitions}
    assert facts() == found


def test_limits(cluster: PrivateCluster) -> None:
    assert findings(Resources(nodes=2, gpus_per_node=4, gpu_type="h100"), facts()) == []
    assert len(findings(Resources(nodes=3, gpus_per_node=5, gpu_type="h200", time="2d"), facts(), 102)) == 4


@pytest.mark.releases
def test_hostlists_as_scontrol_reads_them(cluster: PrivateCluster) -> None:
    for text in ("node[1-3,5],gpu-[01-02]-[1-2]", "n[08-11]", "a,b[1]"):
        assert expand(text) == client.run(["scontrol", "show", "hostnames", text], 60).split()


@pytest.mark.releases
def test_hostile_names_and_comments_shift_nothing(cluster: PrivateCluster) -> None:
    comment = "a|b\n99 RUNNING ü %i $(touch x) \x1f tok-hostile"
    job = submit("--hold", "--job-name=evil\n|%j", f"--comment={comment}")
    array = submit("--hold", "--array=1-3", "--comment=tok-array")
    found = queue()
    assert found[job].comment == comment
    assert (found[job].state, found[job].reason) == ("PENDING", "JobHeldUser")
    waiting = {key for key, entry in found.items() if not is_over(entry.state)}
    assert waiting == {job, f"{array}_[1-3]"}
    assert [found[job].tasks, found[f"{array}_[1-3]"].tasks] == [1, 3]
    assert "tok-array" in found.get(f"{array}_2").comment
    assert (find_token("tok-hostile"), find_token("tok-array"), find_token("tok-none")) == (job, array, None)
    cancel(job)
    cancel(array)
    wait_until(lambda: plain_state(queue(fresh=True)[job].state) == "cancelled", 30, "the job is cancelled")


@pytest.mark.releases
def test_a_running_job(cluster: PrivateCluster) -> None:
    job = submit()
    wait_until(lambda: queue(fresh=True)[job].state == "RUNNING", 30, "the job runs")
    entry = queue()[job]
    assert entry.nodes in ("node1", "node2")
    assert entry.batch_host == entry.nodes
    assert (entry.start or 0) > 1e9
    assert (entry.time_limit, entry.restarts, entry.reason) == (3600, 0, "")
    cancel(job)


@pytest.mark.releases
def test_estimates(cluster: PrivateCluster) -> None:
    assert estimated_start(SLEEP).start is not None
    assert estimate(SLEEP).endswith("in partition main")
    with pytest.raises(SlurmRefused, match="partition"):
        estimate(SLEEP.replace("--mem=100", "--partition=nope"))


def test_sites_defaults_do_not_win_over_the_script(cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "short")
    job = submit("--hold", script=SLEEP.replace("--mem=100", "--partition=urgent"))
    shown = client.run(["squeue", "--noheader", f"--jobs={job}", "--format=%P"], 60).strip()
    cancel(job)
    assert shown == "urgent"


@pytest.mark.releases
def test_launching_from_within_a_job(cluster: PrivateCluster, tmp_path: Path) -> None:
    """A job's own environment, cleaned, lets sbatch make a job that is nothing like it."""
    found = tmp_path / "environment.json"
    told = "import json, os, sys; open(sys.argv[1], 'w').write(json.dumps(dict(os.environ)))"
    run = f'srun python3 -c "{told}" {found}.new && mv {found}.new {found}'
    submit(script=f"#!/bin/bash\n#SBATCH --mem-per-cpu=50 --gpus-per-node=2 --output=/dev/null\n{run}\n")
    wait_until(found.exists, 60, "the job tells its environment")
    inside = json.loads(found.read_text())
    assert inside["CUDA_VISIBLE_DEVICES"] == "0,1"
    kept = clean_environment(inside)
    left = {name for name in kept if name.startswith(("SLURM", "SRUN", "PMI", "SBATCH", "CUDA", "ROCR", "GPU_"))}
    assert left - {"SLURMOPT_TEST_VENV"} == {"SLURM_CONF"}


@pytest.mark.releases
def test_accounting(accounting: PrivateCluster) -> None:
    found = facts()
    assert found.accounting
    assert found.accounts is not None
    assert findings(Resources(account="research", qos="normal"), found) == []
    (line,) = findings(Resources(account="reserch"), found)
    assert "resources.account: 'reserch' is not one of yours (did you mean 'research'?)" in line


@pytest.mark.releases
def test_a_token_that_only_the_database_knows(accounting: PrivateCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    job = submit("--comment=tok-gone")
    cancel(job)
    monkeypatch.setattr("slurmopt.slurm.queue.queue", lambda fresh: {})
    wait_until(lambda: find_token("tok-gone") == job, 30, "sacct knows the job")
    assert find_token("tok-none") is None


def test_a_refused_job_in_the_books_is_no_job(accounting: PrivateCluster) -> None:
    with pytest.raises(SlurmRefused):
        submit("--comment=tok-refused", "--gpus-per-node=h200:1")
    assert find_token("tok-refused") is None


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ('echo "Welcome. 3 jobs of yours wait."; echo "$id"; echo "See https://example.org/queue"', True),
        ('echo "Submitted batch job $id"', True),
        ('echo "$id"; echo 17', True),
    ],
)
def test_a_wrapper_around_sbatch_may_print_more(
    cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, asked: bool
) -> None:
    wrapper, script = tmp_path / "bin" / "sbatch", tmp_path / "job.sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/bash\nid=$({shutil.which("sbatch")} "$@") || exit\n{said}\n')
    wrapper.chmod(0o755)
    script.write_text(SLEEP)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    looks: list[str] = []
    monkeypatch.setattr("slurmopt.slurm.submit.find_job", lambda wanted: looks.append(wanted) or find_job(wanted))
    token = f"tok-{tmp_path.name}"
    job = sbatch_once(script, None, token, timeout=30, retry=False)
    assert find_token(token) == job
    assert bool(looks) == asked
    cancel(job)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("comment", ["", "--comment=rewritten"])
def test_a_job_whose_comment_a_wrapper_changes_is_found_by_its_script(
    cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, comment: str, fails: bool
) -> None:
    wrapper, script = tmp_path / "bin" / "sbatch", tmp_path / "run" / "job.sbatch"
    wrapper.parent.mkdir()
    script.parent.mkdir(mode=0o700)
    said = "echo 'the site says no' >&2; exit 1" if fails else 'echo "Submitted batch job $id"; echo 5000'
    real = shutil.which("sbatch")
    wrapper.write_text(
        f'#!/bin/bash\nfor word; do case $word in --comment=*) ;; *) words+=("$word") ;; esac; done\n'
        f'id=$({real} {comment} "${{words[@]}}") || exit\necho "$id" >> {tmp_path}/ids\n{said}\n'
    )
    wrapper.chmod(0o755)
    script.write_text(SLEEP)
    before = sbatch_once(script, None, "tok-before", timeout=30, retry=False)
    journal = script.with_name("events.jsonl")
    events.append(journal, "submitted", token="tok-before", job=before)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    job = sbatch_once(script, None, f"tok-{tmp_path.name}", timeout=30, retry=False)
    assert (tmp_path / "ids").read_text().split() == [job]
    again = sbatch_once(script, None, f"tok-{tmp_path.name}", timeout=30, retry=True)
    assert (tmp_path / "ids").read_text().split() == [again]
    cancel(before)
    cancel(job)


def test_a_squeue_that_lists_older_jobs_alone_has_no_job_submitted_over_and_over(
    cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A cache of the site's answers for squeue; sbatch's answer gets lost each time."""
    tools, script = tmp_path / "bin", tmp_path / "run" / "job.sbatch"
    tools.mkdir()
    script.parent.mkdir(mode=0o700)
    script.write_text(SLEEP)
    older = sbatch_once(script, None, "tok-older", timeout=30, retry=False)
    events.append(script.with_name("events.jsonl"), "submitted", token="tok-older", job=older)
    lost = "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1"
    for name, text in (
        ("sbatch", f'{shutil.which("sbatch")} "$@" >> {tmp_path}/ids || exit\n{lost}'),
        ("squeue", f'exec {shutil.which("squeue")} --jobs={older} "$@"'),
    ):
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    job = sbatch_once(script, None, f"tok-{tmp_path.name}", timeout=30, retry=False)
    assert (tmp_path / "ids").read_text().split() == [job]
    cancel(older)
    cancel(job)


def test_where_a_wrapper_submits_nothing_nothing_is_taken_for_a_job(
    cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrapper, script = tmp_path / "bin" / "sbatch", tmp_path / "job.sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text("#!/bin/bash\necho 'submissions are closed until 18:00'\n")
    wrapper.chmod(0o755)
    script.write_text(SLEEP)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    with pytest.raises(SlurmRefused, match="closed until 18:00', and Slurm has no such job"):
        sbatch_once(script, None, "tok-closed", timeout=30, retry=False, sleep=lambda seconds: None)


@pytest.mark.parametrize("swap", ["chown nobody {0}", "chown nobody {0}/job.sbatch", "chmod g+w {0}"])
def test_a_script_that_is_swapped_between_two_tries_is_not_submitted(
    cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, swap: str
) -> None:
    wrapper, script, tried = tmp_path / "bin" / "sbatch", tmp_path / "run" / "job.sbatch", tmp_path / "tried"
    wrapper.parent.mkdir()
    script.parent.mkdir(mode=0o700)
    lost = "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1"
    wrapper.write_text(f"#!/bin/bash\necho >> {tried}\n{swap.format(script.parent)}\n{lost}\n")
    wrapper.chmod(0o755)
    script.write_text(SLEEP)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    with pytest.raises(RunError, match="nothing there is run"):
        sbatch_once(script, None, f"tok-{tmp_path.name}", timeout=30, retry=False, sleep=lambda seconds: None)
    assert tried.read_text() == "\n"


def test_a_controller_that_is_down(cluster: PrivateCluster) -> None:
    with cluster.without_controller():
        for question in (facts, queue):
            with pytest.raises(SlurmUnreachable, match="Slurm does not answer"):
                question()


def test_a_controller_that_hears_but_does_not_answer(cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    run = client.run
    cluster.pause_controller()
    try:
        with pytest.raises(SlurmUnreachable, match="squeue got no answer within 1 s"):
            client.run(["squeue"], 1)
        monkeypatch.setattr("slurmopt.slurm.queue._TIMEOUT", 2)
        monkeypatch.setattr("slurmopt.slurm.queue.MAX_AGE", 1.9)
        waited: list[str] = []
        monkeypatch.setattr(client, "run", lambda *words, **more: waited.append("") or run(*words, **more))
        for _ in range(3):  # three sweeps, say: each would wait as long
            with pytest.raises(SlurmUnreachable, match="squeue got no answer within 2 s"):
                queue()
        assert len(waited) == 1
    finally:
        cluster.resume_controller()
    wait_until(lambda: run(["squeue", "--noheader"], 30) is not None, 60, "squeue answers again")
