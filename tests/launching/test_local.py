"""The local backend: the same script and the same run folder, as processes on this machine."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from private_cluster import clean_environment, unprivileged_user, wait_until

from slurmopt import cli
from slurmopt.run_folder import events

LOCAL = ("launch.backend=local",)
TRAIN = """
import time

import slurmopt


def main(config):
    return {"lr": config.lr, "word": config.word}


def until_told(config):
    marker = slurmopt.current_run().folder.checkpoints / "saved"
    if marker.exists():
        return "resumed"
    while not slurmopt.stop_requested():
        slurmopt.progress(1)
        time.sleep(0.05)
    marker.write_text("yes")
    raise slurmopt.Requeue("saved")


until_told.makes_process_group = True  # without torch
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def slurmopt(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurmopt", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, **options)


def launch(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return slurmopt("launch", *LOCAL, *words, **options)


def start(*words: str) -> Path:
    """A run that is not waited for."""
    done = launch(*words, "launch.wait=false", "launch.json=true")
    assert done.returncode == 0, done.stderr
    return Path(data_of(done.stdout)["run"])


def state(run: Path) -> str:
    """As `slurmopt status` has it; in this process, because it is polled."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        cli.main(["status", str(run), "--json"])
    (status,) = data_of(out.getvalue())
    return str(status["state"])


def processes_of(run: Path) -> list[int]:
    """All processes that have the run's folder in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"SLURMOPT_RUN_FOLDER={run}".encode() in environment.split(b"\0"):
                found.append(int(entry.name))
    return found


def test_what_is_escaped_in_a_config_is_text_in_the_function_also_after_a_retry(folder: Path) -> None:
    text = r"word='a ${lr} \${lr} ${oc.env:BRACES}'"
    (folder / "train.py").write_text("def main(config):\n    return config.word\nmain.makes_process_group = True\n")
    words = ["task._target_=train.main", "+lr=0.1", f"+{text}", "launch.json=true"]
    run = Path(data_of(launch(*words, env={**os.environ, "BRACES": "${lr}"}).stdout)["run"])
    assert json.loads((run / "result.json").read_text())["result"] == "a 0.1 ${lr} ${lr}"
    again = slurmopt("retry", str(run), "--again", env={**os.environ, "BRACES": "again"})
    assert again.returncode == 0, again.stderr
    wait_until(lambda: state(run) == "finished", 60, "the retry has finished", lambda: state(run))
    assert json.loads((run / "result.json").read_text())["result"] == "a 0.1 ${lr} again"


@pytest.mark.slow
def test_json_is_all_that_standard_output_gets_and_the_launch_waits(folder: Path) -> None:
    done = launch(
        "task._target_=train.main",
        "+lr=0.5",
        "+word='${oc.env:WORD}'",
        "launch.json=true",
        env={**os.environ, "WORD": "x"},
    )
    run = Path(data_of(done.stdout)["run"])
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "result.json").read_text())["result"] == {"lr": 0.5, "word": "x"}
    assert "${oc.env:WORD}" in (run / "config.yaml").read_text()


@pytest.mark.slow
def test_the_time_limit_brings_a_signal_another_attempt_and_the_end(folder: Path) -> None:
    done = launch("task._target_=train.until_told", "resources.time=30s", "restart.lead=27s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "attempt 1" in done.stdout + done.stderr
    (run,) = (folder / "runs" / "until_told").iterdir()
    assert json.loads((run / "result.json").read_text())["result"] == "resumed"


def test_the_ranks_are_told_a_port_that_nobody_listens_at_on_any_address(folder: Path) -> None:
    (folder / "hold.py").write_text(
        "import pathlib, socket, sys, time\n"
        "held = socket.create_server(('127.0.0.2', int(sys.argv[1])))\n"
        "pathlib.Path('held').touch()\n"
        "time.sleep(20)\n"
    )
    first = "RANDOM=7; port=$((15000 + (RANDOM << 15 | RANDOM) % 15000)); RANDOM=7"  # which the shell will draw again
    hold = f"{first}; {sys.executable} hold.py $port & until [ -e held ]; do sleep 0.1; done"
    listen = [sys.executable, "-c", "import os, socket; socket.create_server(('', int(os.environ['MASTER_PORT'])))"]
    done = launch(f"task.command={json.dumps(listen)}", f"environment.setup={json.dumps([hold])}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_options_of_the_shell_that_the_setup_leaves_on_change_nothing_of_the_supervisor(folder: Path) -> None:
    words = (
        'task.command=[bash,-c,"cat $SLURMOPT_HOSTFILE"]',
        "task.per=node",
        "environment.setup=['set -o noclobber']",
    )
    done = launch(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    (log,) = (folder / "runs").glob("*/*/logs/attempt-0/rank-0.log")
    assert log.read_text() == "localhost slots=1\n"


def test_no_module_is_looked_for_in_the_root_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container has its checkout at /slurmopt, which would be taken for the package."""
    (folder / "seen").mkdir()
    (folder / "seen" / "sitecustomize.py").write_text(
        "import atexit, os, sys\n"
        "def tell():\n"
        "    with open(os.path.join(os.path.dirname(__file__), str(os.getpid())), 'w') as file:\n"
        "        print(sys.orig_argv, os.getcwd() == '/', '' in sys.path or '/' in sys.path, file=file)\n"
        "atexit.register(tell)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder / "seen"))
    assert launch("task.command=[true]").returncode == 0
    told = [path.read_text() for path in (folder / "seen").iterdir() if path.name.isdecimal()]
    (verdict,) = [words for words in told if "slurmopt.job.supervisor.verdict" in words]
    assert verdict.endswith("True False\n")


@pytest.mark.slow
def test_a_signal_before_any_rank_is_there_kills_nothing_and_is_not_lost(folder: Path) -> None:
    done = launch("task._target_=train.until_told", "environment.setup=['[ $SLURMOPT_ATTEMPT = 1 ] || kill -USR1 $$']")
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (folder / "runs" / "until_told").iterdir()
    assert json.loads((run / "result.json").read_text())["result"] == "resumed"


def test_a_git_snapshot_is_what_git_tracks_or_would_track(folder: Path) -> None:
    git = ["git", "-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    (folder / ".gitignore").write_text("data\nruns\n")
    (folder / "data").write_text("large")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", ".gitignore"], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    run = start("task.command=[ls, -A]", "environment.snapshot=git")
    wait_until(lambda: state(run) == "finished", 30, "it ends")
    assert (run / "logs" / "attempt-0" / "rank-0.log").read_text().split() == [".gitignore", "train.py"]
    assert "git        " in (run / "environment.txt").read_text()


def test_the_changes_of_files_that_hold_secrets_are_not_kept(folder: Path) -> None:
    git = ["git", "-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    secret = [".env", "deploy/.ENV.local", "tls.key", "deploy/aws-Credentials", ".ssh/config", "id_rsa"]
    secret += ["secret.yaml", "secrets/db.yaml", "hf_token.txt", "passwords.txt", "API_KEYS.txt", ".kube/config"]
    plain = ["notes.txt", "environment.py", "keys.py", "tokenizer.py"]
    for content in ("first", "tok-5ecret"):
        for name in secret + plain:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"{content} in {name}\n")
        if content == "first":
            for words in (["init", "-q"], ["add", "--all"], ["commit", "-qm", "first"]):
                subprocess.run([*git, *words], check=True)
    run = start("task.command=[true]")
    text = (run / "environment.txt").read_text()
    assert sorted(re.findall(r"left out   (.*): it may hold secrets", text)) == sorted(secret)
    assert re.findall(r"\+tok-5ecret in (.*)", text) == sorted(plain)
    wait_until(lambda: state(run) == "finished", 30, "it ends")


@pytest.mark.slow
def test_the_group_sees_no_changes_of_files_that_it_may_not_read(folder: Path) -> None:
    git = ["git", "-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "-q"], ["add", "--all"], ["commit", "-qm", "first"]):
        (folder / "private.txt").write_text("first\n")
        (folder / "open.txt").write_text("first\n")
        subprocess.run([*git, *words], check=True)
    for name, mode in (("private.txt", 0o600), ("open.txt", 0o644)):
        (folder / name).write_text(f"tok-5ecret in {name}\n")
        (folder / name).chmod(mode)
    subprocess.run([*git, "mv", "private.txt", "renamed.txt"], check=True)
    for words, seen in (([], ["open.txt", "private.txt"]), (["launch.group_access=true"], ["open.txt"])):
        run = start("task.command=[true]", *words)
        text = (run / "environment.txt").read_text()
        assert re.findall(r"\+tok-5ecret in (.*)", text) == seen
        left_out = re.findall(r"left out   (.*): your group may not read it", text)
        assert left_out == ([] if not words else ["private.txt", "renamed.txt"])
        wait_until(lambda run=run: state(run) == "finished", 30, "it ends")


@pytest.mark.slow
@pytest.mark.parametrize("per", ["rank", "node"])
def test_what_starts_a_command_takes_no_module_of_the_project_for_its_own(folder: Path, per: str) -> None:
    setup = "for name in json token signal; do echo 'raise ImportError' > $name.py; done"
    run = start("task.command=[echo, done]", f"task.per={per}", f"environment.setup={json.dumps([setup])}")
    wait_until(lambda: events.read(run / "events.jsonl", "end"), 60, "it ends")
    log = run / "logs" / "attempt-0" / "rank-0.log"
    assert events.read(run / "events.jsonl", "end")[0]["outcome"] == "finished", log.read_text()
    assert "done" in log.read_text()


def test_a_snapshot_by_git_needs_a_repository(folder: Path) -> None:
    done = launch("task.command=[true]", "environment.snapshot=git")
    assert done.returncode == 2
    assert "needs a git repository" in done.stderr
    assert not list((folder / "runs").rglob("*"))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["environment.setup=['source /nonexistent']"], "environment.setup failed at: source /nonexistent"),
        (["environment.setup=['false \"quoted\" \\\\']"], "environment.setup failed at: false"),
        (["environment.modules=[no_such]"], "cannot load the module no_such"),
        (["+environment.variables.KEY=${oc.env:NO_SUCH}"], "the job script ended before the training"),
    ],
)
def test_what_fails_before_the_training_is_told(folder: Path, words: list[str], error: str) -> None:
    run = start("task.command=[true]", *words)
    wait_until(lambda: state(run) == "failed", 60, "it ends", lambda: state(run))
    (status,) = data_of(slurmopt("status", str(run), "--json").stdout)
    assert error in status["error"]
    assert "the end of" in slurmopt("logs", str(run), "--errors").stdout
    assert not list(run.glob("logs/attempt-0/rank-*"))


def test_a_secret_reaches_the_job_through_its_environment_alone(folder: Path) -> None:
    words = ("+key=${oc.env:SECRET}", "environment.setup=['export SEEN=${key}']")
    command = "task.command=[bash, -c, 'test $SEEN = $SECRET']"
    done = launch(*words, command, env={**os.environ, "SECRET": "hunter2"})
    assert done.returncode == 0, done.stdout + done.stderr
    for path in (folder / "runs").rglob("*"):
        assert not path.is_file() or b"hunter2" not in path.read_bytes(), path


def test_json_stays_alone_whatever_the_users_modules_print(folder: Path) -> None:
    (folder / "noisy.py").write_text("print('NOISE')\n")
    words = ("task.command=[true]", "launch.imports=[noisy]", "launch.json=true")
    for more in (["launch.wait=false"], ["launch.dry_run=true"]):
        answer = data_of(launch(*words, *more).stdout)
        assert answer["backend"] == "local"
    assert answer["script"].startswith("#!/bin/bash\n")


@pytest.mark.slow
def test_a_run_of_another_user_is_not_gone_on_with(folder: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("NOT TESTED: giving files away needs root")
    run = start("task.command=[true]")
    wait_until(lambda: state(run) == "finished", 30, "it ends")
    shutil.chown(run / "job.sbatch", unprivileged_user())
    refused = launch(f"launch.run={run}")
    assert refused.returncode == 2
    assert "belongs to another user" in refused.stderr


@pytest.mark.slow
def test_what_ignores_the_signal_ends_at_the_time_limit(folder: Path) -> None:
    done = launch("task.command=[sleep, 300]", "resources.time=4s", "restart.lead=2s")
    assert done.returncode == 1
    (run,) = (folder / "runs" / "run").iterdir()
    assert state(run) == "killed"
    wait_until(lambda: processes_of(run) == [], 30, "its processes are gone")  # the report is written last


@pytest.mark.slow
def test_cancel_leaves_no_process_behind(folder: Path) -> None:
    stubborn = json.dumps(["bash", "-c", "trap '' TERM; sleep 299 & wait; sleep 298"])
    run = start(f"task.command={stubborn}", "resources.tasks_per_node=2")
    wait_until(lambda: state(run) == "running" and len(processes_of(run)) >= 5, 30, "the ranks run")
    assert slurmopt("cancel", str(run)).returncode == 0
    wait_until(lambda: state(run) == "cancelled", 60, "the run is cancelled")
    wait_until(lambda: processes_of(run) == [], 60, "its processes are gone")


@pytest.mark.slow
def test_a_cancelled_run_that_leaves_without_an_error_has_not_finished(folder: Path) -> None:
    polite = json.dumps(["bash", "-c", "trap 'exit 0' TERM; : > ready; while :; do sleep 0.1; done"])
    run = start(f"task.command={polite}")
    wait_until((folder / "ready").exists, 30, "it runs")
    assert slurmopt("cancel", str(run)).returncode == 0
    wait_until(lambda: state(run) not in ("running", "waiting"), 60, "it ends")
    assert state(run) == "cancelled"


@pytest.mark.slow
def test_a_batch_shell_that_is_killed_is_told(folder: Path) -> None:
    run = start("task.command=[sleep, 297]")
    wait_until(lambda: state(run) == "running", 30, "it runs")
    (shell,) = [pid for pid in children_of_runner(run)]
    os.kill(shell, signal.SIGKILL)
    wait_until(lambda: state(run) == "killed", 30, "it is killed")
    wait_until(lambda: processes_of(run) == [], 30, "its processes are gone")


def children_of_runner(run: Path) -> list[int]:
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    (runner,) = [event["pid"] for event in events if event["event"] == "submitted"]
    return [int(pid) for pid in Path(f"/proc/{runner}/task/{runner}/children").read_text().split()]


@pytest.mark.slow
def test_a_run_goes_on_in_its_folder(folder: Path) -> None:
    run = start("task._target_=train.until_told", "launch.name=go")
    wait_until(lambda: state(run) == "running", 30, "it runs")
    assert launch(f"launch.run={run}").returncode == 2
    slurmopt("cancel", "go")
    wait_until(lambda: state(run) == "cancelled", 60, "the run is cancelled")
    (folder / "elsewhere").mkdir()
    done = launch(f"launch.run={run}", cwd=folder / "elsewhere")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((run / "result.json").read_text())["result"] == "resumed"


def test_a_run_never_has_two_runners(folder: Path) -> None:
    run = start("task.command=[sleep, 295]")
    wait_until(lambda: state(run) == "running", 30, "it runs")
    second = [sys.executable, "-m", "slurmopt.backends.runner", str(run)]
    assert subprocess.run(second, timeout=30).returncode == 0
    assert not (run / "logs" / "attempt-1").exists()
    slurmopt("cancel", str(run))


def test_ctrl_c_lets_go_and_says_how_to_cancel(folder: Path) -> None:
    argv = [sys.executable, "-m", "slurmopt", "launch", *LOCAL, "task.command=[sleep, 296]", "launch.name=held"]
    waiting = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: list(folder.glob("runs/held/*/logs/attempt-0")), 30, "the run starts")
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=180)
    (run,) = (folder / "runs" / "held").iterdir()
    assert "which goes on; to end it: slurmopt cancel held/" in err
    assert waiting.returncode == 130
    assert "Traceback" not in err
    assert state(run) in ("running", "pending")
    slurmopt("cancel", "held")


@pytest.mark.slow
def test_another_python_without_slurmopt_can_use_the_small_interface(folder: Path) -> None:
    (folder / "plain.py").write_text("import slurmopt\nslurmopt.progress(7, total=9, loss=0.25)\nprint('went well')\n")
    bare = folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python = bare / "bin" / "python"
    assert subprocess.run([python, "-c", "import slurmopt"], capture_output=True, cwd="/").returncode == 1
    run = start(f"task.command=[{python}, plain.py]", f"task.python={python}", "launch.name=bare")
    wait_until(lambda: state(run) in ("finished", "failed", "killed"), 30, "it ends")
    assert state(run) == "finished", slurmopt("logs", "bare").stdout
    beat = json.loads((run / "heartbeat" / "attempt-0" / "rank-0.json").read_text())
    assert (beat["step"], beat["total_steps"], beat["metrics"]) == (7, 9, {"loss": 0.25})


def test_a_full_disk_while_the_run_folder_is_made(folder: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("NOT TESTED: mounting a small file system needs root")
    small = folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)], check=True)
    try:
        done = launch("task.command=[true]", f"launch.folder={small}/runs", "+filler=" + "x" * 30000)
        assert done.returncode == 2
        assert "the disk is full" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not [path for path in small.rglob("*") if path.is_file()]
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder that the unprivileged user can read and not write."""
    if os.getuid() != 0:
        pytest.skip("NOT TESTED: acting as another user needs root")
    path = Path(f"/tmp/slurmopt-closed-{os.getpid()}")
    path.mkdir(mode=0o755)
    yield path
    path.rmdir()


def test_a_folder_that_cannot_be_written(closed: Path) -> None:
    environment = {**clean_environment(), "HOME": "/nonexistent"}
    words = ("task.command=[true]",)
    done = launch(*words, cwd=closed, user=unprivileged_user(), extra_groups=[], env=environment)
    assert done.returncode == 2
    assert "you may not write there; choose another launch.folder" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_script_that_may_not_be_read_is_told_before_the_queue(closed: Path) -> None:
    script = closed / "train.py"
    script.touch(mode=0o600)
    try:
        environment = {**clean_environment(), "HOME": "/nonexistent"}
        words = ("task.command=python3 train.py", "launch.dry_run=true")
        done = launch(*words, cwd=closed, user=unprivileged_user(), extra_groups=[], env=environment)
        assert done.returncode == 2
        assert f"task.command: you may not read '{script}'" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    finally:
        script.unlink()


@pytest.mark.parametrize("mode", [0o600, 0o700, 0o755], ids=["in a closed folder", "not for him", "not executable"])
def test_a_python_that_may_not_be_run_is_told_before_the_queue(closed: Path, mode: int) -> None:
    folder = closed / "venv"
    folder.mkdir(mode=0o700 if mode == 0o600 else 0o755)
    python = folder / "python"
    python.touch(mode=0o644 if mode == 0o755 else mode)
    try:
        environment = {**clean_environment(), "HOME": "/nonexistent"}
        words = ("task.command=[true]", f"task.python={python}", "launch.dry_run=true")
        done = launch(*words, cwd=closed, user=unprivileged_user(), extra_groups=[], env=environment)
        assert done.returncode == 2
        assert f"task.python: you may not {'reach' if mode == 0o600 else 'run'} '{python}'" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        elsewhere = ("task.command=[true]", "task.python=/of/the/nodes/python", "launch.dry_run=true")
        there = launch(*elsewhere, cwd=closed, user=unprivileged_user(), extra_groups=[], env=environment)
        assert there.returncode == 0, there.stderr
    finally:
        python.unlink()
        folder.rmdir()


def test_launching_never_imports_what_only_the_job_needs(folder: Path) -> None:
    code = (
        "import sys; from slurmopt.launch import main; main(['+experiment=quickstart', 'launch.dry_run=true',"
        "'launch.backend=local']); print([name for name in ('torch', 'boto3', 'pynvml', 'numpy', 'submitit')"
        "if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_a_run_that_only_asks_to_be_started_again_ends(folder: Path) -> None:
    run = start("task.command=[bash, -c, 'exit 75']")
    wait_until(lambda: state(run) == "failed", 60, "it ends", lambda: state(run))
    (status,) = data_of(slurmopt("status", str(run), "--json").stdout)
    assert status["attempts"] == 2
    assert "no progress" in status["reason"]


@pytest.mark.slow
def test_a_commands_own_checkpoints_are_progress(folder: Path) -> None:
    saves = "mkdir -p out; touch out/step-$SLURMOPT_ATTEMPT; test $SLURMOPT_ATTEMPT = 3 || exit 75"
    run = start(f"task.command=[bash, -c, '{saves}']", "task.checkpoints=out/step-*")
    wait_until(lambda: state(run) in ("finished", "failed"), 60, "it ends", lambda: state(run))
    assert state(run) == "finished"


def test_inside_an_allocation_the_run_is_not_the_allocation(folder: Path) -> None:
    done = launch("task.command=[true]", "launch.wait=true", env={**os.environ, "SLURM_JOB_ID": "4242"})
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (folder / "runs").glob("*/*")
    jobs = {event.get("job") for event in events.read(run / "events.jsonl") if event["event"] == "attempt"}
    assert "4242" not in jobs


@pytest.mark.slow
def test_a_run_whose_folder_was_away_at_its_next_attempt_is_brought_back_by_a_retry(folder: Path) -> None:
    run = start("task._target_=train.until_told")
    wait_until(lambda: data_of(slurmopt("status", str(run), "--json").stdout)[0]["step"], 60, "the first step")
    shells, aside = children_of_runner(run), run.with_name("aside")
    run.rename(aside)
    shutil.copytree(aside, run, symlinks=True)
    (shell,) = shells
    os.kill(shell, signal.SIGUSR1)
    # between the end of the ranks and the verdict there is a moment without processes that have the folder's name
    wait_until(lambda: bool(events.read(aside / "events.jsonl", "requeue-refused")), 60, "its end")
    wait_until(lambda: not processes_of(run), 60, "the end of the run's processes")
    shutil.rmtree(run)
    aside.rename(run)
    shown = slurmopt("status", str(run)).stdout
    assert "lost" in shown.splitlines()[0]
    assert "slurmopt retry" in shown
    tended = slurmopt("tend", str(run))
    assert (tended.returncode, tended.stdout) == (0, "")
    assert "is lost and stays so; to let it go on: slurmopt retry" in tended.stderr
    assert "Slurm" not in slurmopt("history", str(run)).stdout
    assert slurmopt("retry", str(run)).returncode == 0
    wait_until(lambda: state(run) == "running", 60, "the retry")
    assert slurmopt("cancel", str(run)).returncode == 0


@pytest.mark.slow
def test_a_run_that_was_swapped_before_its_training_and_put_back_is_brought_back_by_a_retry(folder: Path) -> None:
    there, go = folder / "there", folder / "go"
    wait = f"touch {there}; until [ -e {go} ]; do sleep 0.1; done"
    run = start("task._target_=train.until_told", f"environment.setup=['{wait}']")
    wait_until(there.exists, 60, "the setup")
    aside = run.with_name("aside")
    run.rename(aside)
    run.mkdir()
    go.touch()
    wait_until(lambda: bool(events.read(aside / "events.jsonl", "requeue-refused")), 60, "its end")
    assert list(run.iterdir()) == []
    run.rmdir()
    aside.rename(run)
    wait_until(lambda: state(run) == "lost", 60, "its process to be gone")
    shown = slurmopt("status", str(run)).stdout
    assert "  error      something else is at " in shown
    assert "slurmopt retry" in shown
    assert slurmopt("retry", str(run)).returncode == 0
    wait_until(lambda: state(run) == "running", 60, "the retry")
    assert slurmopt("cancel", str(run)).returncode == 0
