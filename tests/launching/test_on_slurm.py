"""Launches on a real Slurm, by an unprivileged user."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from launching.conftest import COMMAND
from private_cluster import wait_until

FUNCTION = ("task._target_=train.main", "resources.time=5m")
PLAIN = ("task._target_=train.plain", "resources.time=5m")  # where the ranks need not meet: without torch
TWO_BY_TWO = ("resources.nodes=2", "resources.tasks_per_node=2", "resources.cpus_per_task=2")
SHOW = (
    "import json, os; names = 'RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK NNODES MASTER_ADDR MASTER_PORT "
    "SLURMD_NODENAME CUDA_VISIBLE_DEVICES'.split(); print(json.dumps({n: os.environ.get(n) for n in names}))"
)


def rank_log(answer: dict[str, Any], rank: int, attempt: int = 0) -> str:
    return (Path(answer["run"]) / "logs" / f"attempt-{attempt}" / f"rank-{rank}.log").read_text()


def result(answer: dict[str, Any]) -> Any:
    return json.loads((Path(answer["run"]) / "result.json").read_text())


@pytest.mark.releases
def test_two_nodes_of_two_ranks_finish_and_status_says_so(project: Any) -> None:
    answer = project.submit(*FUNCTION, *TWO_BY_TWO, "+lr=0.5", "launch.name=two")
    assert answer["runs"] == 1
    assert answer["backend"] == "sbatch"
    status = project.wait_for(answer, "finished", "failed")
    assert (status["state"], status["job"]) == ("finished", answer["job_ids"][0])
    assert (status["step"], status["total_steps"]) == (3, 3)
    assert result(answer)["result"] == {"world": 4, "lr": 0.5}
    nodes = {rank_log(answer, rank).split()[-1] for rank in range(4)}
    assert len(nodes) == 2


def test_a_command_gets_what_torchrun_would_set(project: Any) -> None:
    words = json.dumps([sys.executable, "-c", SHOW])
    answer = project.submit(f"task.command={words}", *TWO_BY_TWO, "resources.gpus_per_node=2", "resources.time=5m")
    project.wait_for(answer, "finished")
    ranks = [json.loads(rank_log(answer, rank).splitlines()[-1]) for rank in range(4)]
    assert [rank["RANK"] for rank in ranks] == ["0", "1", "2", "3"]
    assert [rank["LOCAL_RANK"] for rank in ranks] == ["0", "1", "0", "1"]
    assert [rank["NODE_RANK"] for rank in ranks] == ["0", "0", "1", "1"]
    assert {rank["WORLD_SIZE"] for rank in ranks} == {"4"}
    assert {rank["LOCAL_WORLD_SIZE"] for rank in ranks} == {"2"}
    assert {rank["CUDA_VISIBLE_DEVICES"] for rank in ranks} == {"0,1"}
    assert len({(rank["MASTER_ADDR"], rank["MASTER_PORT"]) for rank in ranks}) == 1


def test_a_secret_in_a_command_stands_in_no_command_line_that_others_can_read(project: Any) -> None:
    """But for the user's own program, which here does without by the time another user looks."""
    words = json.dumps(["sh", "-c", "echo $0; exec sleep 300", "tok-5ecret"])
    answer = project.submit(f"task.command={words}", "resources.time=5m", "+notify.webhook=http://127.0.0.1:9/5ecret")
    log = Path(answer["run"]) / "logs" / "attempt-0" / "rank-0.log"
    wait_until(lambda: log.exists() and "tok-5ecret" in log.read_text(), 60, "the program runs")
    seen = subprocess.run(["ps", "-wweo", "args"], user="nobody", capture_output=True, text=True, check=True).stdout
    own = [line for line in seen.splitlines() if answer["run"] in line]
    assert any("slurmopt.job" in line for line in own), seen
    assert any(line.startswith("srun ") for line in own), seen
    assert "5ecret" not in seen
    project.slurmopt("cancel", answer["run"])
    project.wait_for(answer, "cancelled")


@pytest.mark.releases
def test_torchrun_finds_its_nodes_without_any_flag(project: Any) -> None:
    (project.path / "under_torchrun.py").write_text(
        "import os, torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "one = torch.ones(1)\ndist.all_reduce(one)\nif dist.get_rank() == 0: print('sum', int(one), flush=True)\n"
        "dist.destroy_process_group()\n"
    )
    torchrun = json.dumps([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", "under_torchrun.py"])
    answer = project.submit(f"task.command={torchrun}", "task.per=node", "resources.nodes=2", "resources.time=5m")
    status = project.wait_for(answer, "finished", "failed")
    assert status["state"] == "finished", rank_log(answer, 0)
    assert "sum 2" in rank_log(answer, 0)


def test_a_port_that_another_job_takes_first_is_passed_by(project: Any) -> None:
    """After the batch shell has found it free: while the ranks import."""
    (project.path / "late.py").write_text(
        "import os, pathlib, time\n"
        "if os.environ['RANK'] == '0':\n"
        "    pathlib.Path('port.part').write_text(os.environ['MASTER_PORT'])\n"
        "    pathlib.Path('port.part').rename('port')\n"
        "    while not pathlib.Path('held').exists():\n"
        "        time.sleep(0.05)\n"
        "from train import main\n"
    )
    (project.path / "hold.py").write_text(
        "import pathlib, socket, time\n"
        "while not pathlib.Path('port').exists():\n"
        "    time.sleep(0.05)\n"
        "held = socket.create_server(('', int(pathlib.Path('port').read_text())))\n"
        "pathlib.Path('held').touch()\n"
        "time.sleep(300)\n"
    )
    holds = ["--nodelist=node1", "--mem=100", "--output=/dev/null", f"--wrap={sys.executable} hold.py"]
    project.run(["sbatch", *holds])
    ranks = ("resources.tasks_per_node=2", "resources.nodelist=node1", "resources.time=5m")
    answer = project.submit("task._target_=late.main", *ranks)
    assert project.wait_for(answer, "finished", "failed")["state"] == "finished", rank_log(answer, 0)
    assert result(answer)["result"]["world"] == 2
    assert "rank 0 takes another one" in rank_log(answer, 0)
    assert not (Path(answer["run"]) / "logs" / "attempt-1").exists()


def test_the_dry_run_is_the_submitted_script_byte_for_byte(project: Any) -> None:
    words = (*PLAIN, "launch.name=exact", "launch.id=one", "resources.comment=mine")
    dry = project.launch(*words, "launch.dry_run=true")
    assert not (project.path / "runs").exists()
    answer = project.submit(*words)
    job = answer["job_ids"][0]
    project.run(["scontrol", "write", "batch_script", job, "written.sh"])
    assert (project.path / "written.sh").read_text() == dry.stdout
    comment = project.cluster.run(["squeue", "-h", "--states=all", "-j", job, "-o", "%k"]).stdout
    token = comment.split()[-1]
    assert comment.split()[0] == "mine"
    assert token.startswith("slurmopt:")
    assert token not in dry.stdout


def test_repeating_a_launch_with_its_id_never_submits_twice(project: Any) -> None:
    words = (*PLAIN, "launch.name=again", "launch.id=one")
    first, second = project.submit(*words), project.submit(*words)
    assert first == second
    other = project.launch("task._target_=train.broken", *words[2:], check=False)
    assert other.returncode == 2
    assert "is taken by another run" in other.stderr
    project.wait_for(first, "finished")


def test_a_repeated_launch_says_that_it_is_one(project: Any) -> None:
    words = ("task.command=[true]", "launch.name=twice", "launch.id=one")
    first, second = project.launch(*words).stdout, project.launch(*words).stdout
    assert first.startswith("Submitted twice/one as job")
    assert second.startswith("Submitted before, and not again: twice/one as job")


def test_the_same_name_twice_makes_two_runs(project: Any) -> None:
    first, second = (project.submit("task.command=[true]", "launch.name=same") for _ in range(2))
    assert first["run"] != second["run"]
    assert Path(first["run"]).parent == Path(second["run"]).parent


def test_an_error_shows_the_first_failing_rank_first(project: Any) -> None:
    answer = project.submit("task._target_=train.broken", *TWO_BY_TWO, "resources.time=5m")
    status = project.wait_for(answer, "failed", "finished")
    assert (status["state"], status["rank"]) == ("failed", 1)
    assert "the second rank's own mistake" in status["error"]
    errors = project.slurmopt("logs", answer["run"], "--errors").stdout
    assert "ValueError: the second rank's own mistake" in errors
    assert 'train.py", line' in errors


def test_an_import_error_is_the_users_and_comes_with_its_line(project: Any) -> None:
    (project.path / "badly.py").write_text("import no_such_thing\n\ndef main(config): ...\n")
    answer = project.submit("task._target_=badly.main", "resources.time=5m")
    status = project.wait_for(answer, "failed")
    assert "no_such_thing" in status["error"]
    assert "badly.py" in project.slurmopt("logs", answer["run"], "--errors").stdout


@pytest.mark.releases
def test_cancel_ends_a_running_job_and_the_run_says_cancelled(project: Any) -> None:
    answer = project.submit("task.command=[sleep, 600]", "resources.time=15m", "launch.name=long")
    project.wait_for(answer, "running")
    assert "cancelled" in project.slurmopt("cancel", "long").stdout
    assert project.wait_for(answer, "cancelled")["state"] == "cancelled"
    again = project.slurmopt("cancel", "long", check=False)
    assert again.returncode == 2


@pytest.mark.releases
@pytest.mark.parametrize("how", ["slurmopt", "scancel"])
def test_a_cancelled_run_does_not_come_back_although_it_saved(project: Any, how: str) -> None:
    answer = project.submit("task._target_=train.saves_whenever_told", "resources.time=15m", "launch.name=saver")
    job = answer["job_ids"][0]
    beat = Path(answer["run"]) / "heartbeat" / "attempt-0" / "rank-0.json"
    wait_until(lambda: beat.exists() and '"running"' in beat.read_text(), 30, "it trains")
    if how == "slurmopt":
        project.slurmopt("cancel", "saver")
    else:
        project.run(["scancel", job])
    project.wait_for(answer, "cancelled")
    squeue = ["squeue", "-h", "--states=all", "-j", job, "-o", "%T"]
    wait_until(lambda: project.run(squeue).stdout.strip() != "COMPLETING", 60, "Slurm has cleaned up")
    assert project.run(squeue).stdout.strip() == "CANCELLED"


def test_a_variable_that_the_job_lacks_is_told_and_named(project: Any) -> None:
    answer = project.submit("task.command=[true]", "+environment.variables.KEY=${oc.env:NO_SUCH}")
    assert project.wait_for(answer, "failed", "lost")["state"] == "failed"
    log = Path(answer["run"]) / "logs" / f"job-{answer['job_ids'][0]}.log"
    assert "environment.variables.KEY needs NO_SUCH in the environment of the job" in log.read_text()


def test_a_run_goes_on_in_its_folder_and_not_while_it_is_alive(project: Any) -> None:
    answer = project.submit("task.command=[sleep, 600]", "resources.time=15m", "launch.name=go")
    project.wait_for(answer, "running")
    refused = project.launch(f"launch.run={answer['run']}", check=False)
    assert refused.returncode == 2
    assert "is running; first: slurmopt cancel" in refused.stderr
    project.slurmopt("cancel", "go")
    project.wait_for(answer, "cancelled")
    again = project.submit("launch.run=go")
    assert again["run"] == answer["run"]
    assert again["job_ids"] != answer["job_ids"]
    assert project.wait_for(again, "running")["attempt"] == 1
    project.slurmopt("cancel", "go")


def test_all_that_the_cluster_cannot_give_is_said_at_once(project: Any) -> None:
    words = ("task.command=[true]", "resources.nodes=9", "resources.time=5d", "resources.gpus_per_node=9")
    refused = project.launch(*words, check=False)
    assert refused.returncode == 2
    for key in ("resources.nodes", "resources.time", "resources.gpus_per_node"):
        assert key in refused.stderr
    assert not (project.path / "runs").exists()
    refused = project.launch("task.command=[true]", "resources.partition=mian", check=False)
    assert "did you mean 'main'?" in refused.stderr


def test_what_only_sbatch_knows_is_refused_before_anything_is_made(project: Any) -> None:
    refused = project.launch("task.command=[true]", "resources.constraint=no_such_feature", check=False)
    assert refused.returncode == 2
    assert "feature" in refused.stderr.lower()
    assert not (project.path / "runs").exists()
    unchecked = project.launch("task.command=[true]", "resources.constraint=nix", "launch.check=false", check=False)
    assert unchecked.returncode == 2
    assert not list((project.path / "runs").rglob("*"))


def test_the_run_folder_is_private_and_holds_no_secret(project: Any) -> None:
    words = (
        "task.command=[bash, -c, 'test $(printenv KEY | wc -c) = 7']",
        "+environment.variables.KEY=${oc.env:TOKEN}",
    )
    answer = project.submit(*words, "launch.name=private", TOKEN="s3cret")
    assert project.wait_for(answer, "finished", "failed")["state"] == "finished"
    assert stat.S_IMODE(os.stat(answer["run"]).st_mode) == 0o700
    for path in Path(answer["run"]).rglob("*"):
        if path.is_file():
            assert b"s3cret" not in path.read_bytes(), path


def test_a_run_folder_that_another_user_swaps_in_the_queue_runs_nothing_of_theirs(project: Any) -> None:
    quick = project.path / "bin"
    quick.mkdir()
    (quick / "sleep").write_text("#!/bin/sh\nexec /bin/sleep 0.1\n")  # the job looks 60 times, a second apart
    (quick / "sleep").chmod(0o755)
    words = (*PLAIN, "launch.name=swapped", "+resources.extra.begin=now+1hour")
    answer = project.submit(*words, PATH=f"{quick}:{os.environ['PATH']}")
    run, trace, log = Path(answer["run"]), project.path / "trace", project.path / "said.log"
    project.path.chmod(0o777)  # as a group's own folder is, for its members
    evil = f"open({str(trace)!r}, 'w')\n"
    for command in (
        ["mv", "runs", "gone"],
        ["mkdir", "-p", "-m", "777", str(run / "logs"), str(run / "heartbeat")],
        ["ln", "-s", str(log), str(run / "logs" / f"job-{answer['job_ids'][0]}.log")],
        ["sh", "-c", f"for name in json token os argparse train; do echo {shlex.quote(evil)} > {run}/$name.py; done"],
    ):
        subprocess.run(command, cwd=project.path, user="nobody", group="nogroup", extra_groups=[], check=True)
    log.touch()
    log.chmod(0o666)
    project.run(["scontrol", "update", f"JobId={answer['job_ids'][0]}", "StartTime=now"])
    told = "supervisor.sh is missing, or not what the launch wrote: the job ends"
    wait_until(lambda: told in log.read_text(), 180, "it ends", log.read_text)
    assert not trace.exists()
    assert not list((run / "logs").glob("attempt-*"))


def test_who_may_end_a_users_jobs_may_cancel_their_runs_and_a_foreign_journal_ends_none_of_ones_own(
    project: Any,
) -> None:
    """SIMULATED: the right of a coordinator, which takes accounting; scancel itself is run by root for them."""
    # One that waits: what a running one makes is closed to them without launch.group_access.
    waits = ("task.command=[sleep, 300]", "resources.time=5m", "+resources.extra.begin=now+1hour")
    answer = project.submit(*waits, "launch.name=ended")
    run, (job,) = Path(answer["run"]), answer["job_ids"]
    project.path.chmod(0o755)
    run.chmod(0o755)
    for name in ("events.jsonl", "config.yaml", "job.sbatch"):
        (run / name).chmod(0o644)
    ask, done, bin_folder = project.path / "ask", project.path / "done", project.path / "bin"
    bin_folder.mkdir()
    (bin_folder / "scancel").write_text(f'#!/bin/sh\necho "$@" > {ask}\nuntil [ -e {done} ]; do sleep 0.1; done\n')
    (bin_folder / "scancel").chmod(0o755)
    ask.touch()
    ask.chmod(0o666)
    environment = {**project.environment(), "HOME": "/nonexistent", "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    as_other: dict[str, Any] = {
        "cwd": project.path, "user": "nobody", "group": "nogroup", "extra_groups": [], "env": environment, "text": True,
    }  # fmt: skip
    cancel = [sys.executable, "-m", "slurmopt", "cancel", str(run)]
    coordinator = subprocess.Popen(cancel, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **as_other)
    wait_until(lambda: ask.read_text() or coordinator.poll() is not None, 60, "scancel is asked")
    assert ask.read_text() == f"{job}\n", coordinator.communicate()
    project.cluster.run(["scancel", job])
    done.touch()
    out, err = coordinator.communicate(timeout=120)
    assert coordinator.returncode == 0, err
    assert "cancelled" in out
    # A run of somebody else's whose journal names one's own job.
    again = project.submit(*waits, "launch.name=kept")
    journal = (run / "events.jsonl").read_text().replace(f'"{job}"', f'"{again["job_ids"][0]}"')
    planted = run.parent / "planted"
    shutil.copytree(run, planted)
    (planted / "events.jsonl").write_text(journal)
    planted.chmod(0o755)
    for path in (planted, *planted.rglob("*")):
        shutil.chown(path, "nobody")
    refused = project.slurmopt("cancel", str(planted), check=False)
    assert refused.returncode == 2
    assert "belongs to another user (nobody)" in refused.stderr
    assert project.run(["squeue", "--noheader", "--jobs", again["job_ids"][0]]).stdout.strip()


def test_a_group_reads_runs_and_sweeps_and_writes_nothing_of_them(project: Any) -> None:
    """The umask of many sites, 002, is the training's; slurmopt's own files are written by nobody else."""
    words = "task.command='[bash, -c, \"umask; exit 1\"]' launch.group_access=true launch.json=true"
    for sweep, told in (("", ""), ("-m", "+lr=1,2"), ("-m", "+lr=3,4 sweep.per_task=2")):
        command = f"umask 002; {shlex.join(COMMAND)} launch {sweep} {words} {told}"
        answer = data_of(project.run(["bash", "-c", command]).stdout)
        project.wait_for(answer, "finished", "failed")
        run = Path(answer["run"])
        assert run.stat().st_mode & 0o777 == 0o750
        project.wait_until_no_job_is_left()  # which still tidies the folder when its end is already written
        paths = [path for path in [run, *run.rglob("*")] if not path.is_symlink() and path.exists()]
        assert [str(path) for path in paths if path.stat().st_mode & 0o022] == []
        assert any("0002" in path.read_text() for path in paths if path.name in ("rank-0.log", "points.log"))


def test_edits_while_the_job_waits_do_not_change_a_snapshot(project: Any) -> None:
    answer = project.submit(*PLAIN, "environment.snapshot=copy", "+resources.extra.begin=now+8")
    (project.path / "train.py").write_text("def main(config): raise SystemExit('edited')\n")
    assert project.wait_for(answer, "finished", "failed")["state"] == "finished"


@pytest.mark.releases
def test_hostile_names_and_paths_stay_text(project: Any) -> None:
    hostile = project.path / "we ird $(touch pwned) %j 'q' \"d\" ;&"
    project.run(["mkdir", str(hostile)])
    project.path = hostile
    name = "$(touch pwned)`touch pwned`'; touch pwned; %j"
    words = json.dumps(["printf", "%s|", "$(touch pwned)", "a  b", "`id`", "'", "%j"])
    answer = project.submit(f"task.command={words}", f'launch.name="{name}"', f'resources.comment="{name}"')
    assert answer["name"] == name
    assert project.wait_for(answer, "finished", "failed")["state"] == "finished"
    assert rank_log(answer, 0) == "$(touch pwned)|a  b|`id`|'|%j|"
    assert (Path(answer["run"]) / "logs" / f"job-{answer['job_ids'][0]}.log").exists()
    assert not list(project.path.parent.rglob("pwned"))


def test_launching_from_inside_a_job(project: Any) -> None:
    """Inherited SLURM_*, SBATCH_* and SRUN_* of the outer job change nothing; SLURM_CONF stays."""
    inner = f"{sys.executable} -m slurmopt launch task.command=[env] launch.name=inner launch.json=true"
    script = f"#!/bin/bash\n#SBATCH --ntasks=3 --mem-per-cpu=100 --job-name=outer --output=outer.log\n{inner}\n"
    (project.path / "outer.sh").write_text(script)
    project.run(["sbatch", "outer.sh"])
    log = project.path / "outer.log"
    wait_until(lambda: log.exists() and log.read_text().endswith("}\n"), 60, "the inner launch")
    answer = data_of(log.read_text().splitlines()[-1])
    assert project.wait_for(answer, "finished", "failed")["state"] == "finished"
    seen = dict(line.split("=", 1) for line in rank_log(answer, 0).splitlines() if "=" in line)
    assert seen["SLURM_JOB_ID"] == answer["job_ids"][0]
    assert seen["SLURM_NTASKS"] == "1"
    assert "SLURM_MEM_PER_CPU" not in seen or seen["SLURM_MEM_PER_CPU"] != "100"


def test_waiting_shows_the_run_and_ends_with_its_status(project: Any) -> None:
    done = project.launch(*PLAIN, "launch.wait=true", "launch.name=waited")
    assert "rank 0 of 1" in done.stdout
    assert "finished" in done.stdout
    failed = project.launch("task.command=[false]", "launch.wait=true", check=False)
    assert failed.returncode == 1


@pytest.mark.parametrize("target", ["train.main", "train.broken"])
def test_a_submitit_job_gives_its_result_or_its_error(project: Any, target: str) -> None:
    # The ranks of one node fail as those of two do.
    ranks, count = (TWO_BY_TWO, "4") if target == "train.main" else (TWO_BY_TWO[1:], "2")
    answer = project.submit(f"task._target_={target}", *ranks, "resources.time=5m", "launch.backend=submitit")
    project.wait_for(answer, "finished", "failed")
    ask = (
        "import submitit, sys; ranks = range(int(sys.argv[3]));"
        "job = submitit.SlurmJob(folder=sys.argv[1], job_id=sys.argv[2], tasks=ranks);"
        "errors = [job.task(rank).exception() for rank in ranks];"
        "print(*filter(None, errors)) if any(errors) else print(job.results())"
    )
    words = [sys.executable, "-c", ask, f"{answer['run']}/submitit", answer["job_ids"][0], count]
    said = project.run(words, timeout=120).stdout
    expected = "'world': 4" if target == "train.main" else "the second rank's own mistake"
    assert expected in said
