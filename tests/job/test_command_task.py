"""Commands in real rank processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from job.harness import Runner, alive, empty_python, send, wait_for

from slurmopt.errors import JobError
from slurmopt.job.facts import process_tree
from slurmopt.job.worker.command import expand

PYTHON = sys.executable
ENVIRONMENT = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "NNODES",
    "MASTER_ADDR",
    "SLURMOPT_ATTEMPT",
)


def test_every_rank_sees_torchruns_words(runner: Runner) -> None:
    assert runner.run(2, "--", "sh", "-c", " ".join(f'echo {word}="${word}";' for word in ENVIRONMENT)) == 0
    for rank in (0, 1):
        found = dict(line.split("=") for line in runner.log(rank).splitlines())
        assert found == {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "NODE_RANK": "0",
            "NNODES": "1",
            "MASTER_ADDR": "127.0.0.1",
            "SLURMOPT_ATTEMPT": "0",
        }


def test_words_reach_the_command_as_they_are(runner: Runner) -> None:
    hostile = ["a b", "$(touch x)", "'", '"', "line\nline", "*", "--heartbeat", "--", "\\${lr}", "${oc.env:RANK}"]
    assert runner.run(1, "--", PYTHON, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *hostile) == 0
    assert json.loads(runner.log(0)) == [*hostile[:-2], "${lr}", "0"]
    assert not (runner.code / "x").exists()


@pytest.mark.parametrize(
    ("word", "expanded"),
    [
        ("${oc.env:A_NAME}", "its value"),
        ("x${oc.env:A_NAME}y", "xits valuey"),
        ("${oc.env:NO_NAME,there}", "there"),
        ("${oc.env:NO_NAME, 'a b' }", "a b"),
        ("${oc.env:NO_NAME,}", ""),
        (r"\${oc.env:A_NAME}", "${oc.env:A_NAME}"),
        ("$A_NAME ${lr}", "$A_NAME ${lr}"),
    ],
)
def test_expand(monkeypatch: pytest.MonkeyPatch, word: str, expanded: str) -> None:
    monkeypatch.setenv("A_NAME", "its value")
    assert expand(word) == expanded


def test_expand_names_the_missing_variable() -> None:
    with pytest.raises(JobError, match="NOT_SET_ANYWHERE"):
        expand("--path=${oc.env:NOT_SET_ANYWHERE}")


def test_a_python_commands_traceback_is_in_the_result(runner: Runner) -> None:
    runner.module("train", "import os\nif os.environ['RANK'] == '1':\n    raise ValueError('bad data')\n")
    assert runner.run(2, "--", PYTHON, "train.py") == 1
    result = runner.result()
    assert (result["outcome"], result["rank"], result["exit_code"]) == ("user error", 1, 1)
    assert result["error"].endswith("exit status 1: ValueError: bad data")
    assert result["traceback"].startswith("Traceback")
    assert runner.story.splitlines()[1].startswith("Traceback")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["no-such-program"], "is not found on PATH"),
        (["./no-such-program"], "is not found in"),
        (["./data"], "is not executable"),
        (["./empty"], "is not a program"),
        (["./lost"], "the interpreter in its first line is not found"),
        (["echo", "${oc.env:NOT_SET_ANYWHERE}"], "NOT_SET_ANYWHERE"),
    ],
)
def test_a_command_that_cannot_start(runner: Runner, words: list[str], told: str) -> None:
    (runner.code / "data").write_text("hello")
    for name, text in (("empty", "\x01\x02"), ("lost", "#!/no/interpreter\n")):
        (runner.code / name).write_text(text)
        (runner.code / name).chmod(0o755)
    assert runner.run(1, "--", *words) == 1
    assert told in runner.result()["error"]


def test_the_commands_own_exit_status_is_kept(runner: Runner) -> None:
    assert runner.run(1, "--", "sh", "-c", "exit 42") == 1
    assert runner.result()["exit_code"] == 42


def test_a_command_killed_by_a_signal(runner: Runner) -> None:
    assert runner.run(1, "--", "sh", "-c", "kill -KILL $$") == 137
    assert (runner.result()["outcome"], runner.result()["exit_code"]) == ("killed", 137)
    assert "SIGKILL" in runner.result()["error"]


@pytest.mark.parametrize("how", ["exit 75", ": > $SLURMOPT_RUN_FOLDER/requeue"])
def test_a_command_asks_to_be_started_again(runner: Runner, how: str) -> None:
    assert runner.run(2, "--", "sh", "-c", how) == 75
    runner.attempt = 1
    assert runner.run(2, "--", "true") == 0, "the wish was for one attempt"


def test_a_failing_rank_ends_the_others_and_what_they_started(runner: Runner) -> None:
    runner.module(
        "train",
        "import os, subprocess, time, pathlib\n"
        "if os.environ['RANK'] == '0':\n"
        "    child = subprocess.Popen(['sleep', '100'], start_new_session=True)\n"
        "    pathlib.Path('child').write_text(str(child.pid))\n"
        "    time.sleep(100)\n"
        "while not os.path.exists('child'): time.sleep(0.01)\n"
        "raise SystemExit(3)\n",
    )
    assert runner.run(2, "--", PYTHON, "train.py") == 1
    assert (runner.result()["rank"], runner.result()["exit_code"]) == (1, 3)
    assert not alive(int((runner.code / "child").read_text()))


REPORTS = """
import sys, time
from slurmopt import progress
for step in range(1, 1001):
    progress(step, 1000, loss=1 / step)
"""


def test_a_commands_own_python_reports_its_steps_to_the_last(runner: Runner) -> None:
    runner.module("train", REPORTS)
    assert runner.run(1, "--", PYTHON, "train.py") == 0
    beat = runner.beat(0)
    assert beat is not None
    assert (beat.step, beat.total_steps, beat.first_step, beat.metrics) == (1000, 1000, 1, {"loss": 0.001})


@pytest.mark.slow
def test_steps_of_a_command_show_while_it_runs(runner: Runner) -> None:
    runner.module("train", "import time\nfrom slurmopt import progress\nprogress(5, 10)\ntime.sleep(100)\n")
    process = runner.start(1, "--", PYTHON, "train.py")
    wait_for(lambda: (beat := runner.beat(0)) and beat.step == 5, "step 5 in the heartbeat")
    send(process, signal.SIGTERM)
    assert runner.finish(process) == 137
    assert "SIGTERM" in runner.result()["error"]


def test_a_script_that_asks_whether_to_stop_is_not_killed_by_the_signal(runner: Runner) -> None:
    runner.module(
        "train",
        "import sys, time\nfrom slurmopt import stop_requested\n"
        "stop_requested()\nprint('ready', flush=True)\n"
        "while not stop_requested(): time.sleep(0.01)\n"
        "sys.exit(75)\n",
    )
    process = runner.start(1, "--", PYTHON, "train.py")
    runner.wait_for_log(0, "ready")
    send(process, signal.SIGTERM)
    assert runner.finish(process) == 75


def test_a_script_finds_the_stop_file(runner: Runner) -> None:
    runner.module(
        "train",
        "import sys, time\nfrom slurmopt import stop_requested\nprint('ready', flush=True)\n"
        "while not stop_requested(): time.sleep(0.01)\nsys.exit(75)\n",
    )
    process = runner.start(1, "--", PYTHON, "train.py")
    runner.wait_for_log(0, "ready")
    runner.folder.stop_request(0).touch()
    assert runner.finish(process) == 75


TRAP = "trap 'echo got it; exit 75' {0}; echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize("number", ["USR1", "USR2", "INT"])
def test_the_command_gets_the_signal_it_was_promised(runner: Runner, number: str) -> None:
    process = runner.start(1, "--forward", number, "--", "bash", "-c", TRAP.format(number))
    runner.wait_for_log(0, "ready")
    send(process, signal.SIGUSR1)
    assert runner.finish(process) == 75
    assert "got it" in runner.log(0)


def test_a_command_that_was_promised_nothing_outlives_usr1(runner: Runner) -> None:
    process = runner.start(1, "--", "bash", "-c", "echo ready $$; while [ ! -e go ]; do sleep 0.05; done; echo done")
    runner.wait_for_log(0, "ready")
    os.kill(int(runner.log(0).split("ready ")[1].split()[0]), signal.SIGUSR1)  # as slurmstepd does
    send(process, signal.SIGUSR1)
    (runner.code / "go").touch()
    assert runner.finish(process) == 0
    assert "done" in runner.log(0)


@pytest.mark.slow
def test_one_process_per_node_gives_torchrun_its_defaults(runner: Runner) -> None:
    pytest.importorskip("torch")
    runner.module(
        "train",
        "import os, torch.distributed as dist\nfrom slurmopt import progress\n"
        "dist.init_process_group('gloo')\n"
        "progress(10 + dist.get_rank())\nprint(f'world {dist.get_world_size()}')\ndist.destroy_process_group()\n",
    )
    runner.environment["CUDA_VISIBLE_DEVICES"] = "0,1"
    torchrun = str(Path(PYTHON).parent / "torchrun")
    assert runner.run(1, "--per", "node", "--", torchrun, "train.py") == 0
    assert runner.log(0).count("world 2") == 2
    beat = runner.beat(0)
    assert beat is not None
    assert beat.step == 10, "the worker with local rank 0 speaks for the node"


def test_commands_need_nothing_but_the_standard_library(runner: Runner, tmp_path: Path) -> None:
    python = empty_python(tmp_path)
    assert runner.finish(runner.start_with(str(python), 2, "--", "echo", "hello")) == 0
    assert "hello" in runner.log(1)


def test_an_empty_call_lists_what_is_valid(runner: Runner) -> None:
    assert runner.run(1) != 0


@pytest.mark.slow
def test_environment_txt_has_a_section_per_attempt(runner: Runner) -> None:
    runner.run(1, "--", "true")
    runner.attempt = 1
    runner.run(1, "--", "true")
    text = runner.folder.environment.read_text()
    assert "[attempt 0]" in text
    assert "[attempt 1]" in text
    assert f"({sys.executable})" in text


@pytest.mark.slow
def test_torchrun_starts_as_many_ranks_as_were_asked_for(runner: Runner) -> None:
    pytest.importorskip("torch")
    runner.module("train", "import os\nprint('world ' + os.environ['WORLD_SIZE'])\n")  # one write: they share a log
    words = ("--per", "node", "--ranks-per-node", "2", "--", PYTHON, "-m", "torch.distributed.run", "train.py")
    assert runner.run(1, *words) == 0
    assert runner.log(0).count("world 2") == 2


TELL_WORDS = "#!/bin/sh\nprintf '%s\\n' \"$@\"\n"
WHERE = {"MASTER_ADDR": "node1", "MASTER_PORT": "15001", "SLURMOPT_HOSTFILE": "/run/hostfile"}


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (
            ["accelerate", "launch"],
            "--num_processes=4 --num_machines=2 --machine_rank=0 --main_process_ip=node1 --main_process_port=15001"
            " --multi_gpu",
        ),
        (
            ["accelerate", "launch", "--num-processes=3", "--use_fsdp", "--main_process_port", "7"],
            "--num_machines=2 --machine_rank=0 --main_process_ip=node1 --num-processes=3 --use_fsdp"
            " --main_process_port 7",
        ),
        (
            ["deepspeed"],
            "--no_ssh --node_rank=0 --hostfile=/run/hostfile --master_addr=node1 --master_port=15001",
        ),
        (["deepspeed", "--launcher=slurm", "-H", "mine"], "--launcher=slurm -H mine"),
        (
            ["accelerate", "launch", "--config_file=my.yaml", "--num-machines=1"],
            "--num_processes=4 --machine_rank=0 --main_process_ip=node1 --main_process_port=15001"
            " --config_file=my.yaml --num-machines=1",
        ),
        (
            ["accelerate", "launch", "--use-fsdp", "--main-process-ip", "there"],
            "--num_processes=4 --num_machines=2 --machine_rank=0 --main_process_port=15001"
            " --use-fsdp --main-process-ip there",
        ),
        (
            ["accelerate", "launch", "--config-file", "my.yaml", "-m", "train", "--num_machines", "9"],
            "--num_processes=4 --num_machines=2 --machine_rank=0 --main_process_ip=node1 --main_process_port=15001"
            " --config-file my.yaml -m train --num_machines 9",
        ),
        (
            ["accelerate", "launch", "my.py", "--config_file=x", "--cpu", "--num-machines", "9"],
            "--num_processes=4 --num_machines=2 --machine_rank=0 --main_process_ip=node1 --main_process_port=15001"
            " --multi_gpu my.py --config_file=x --cpu --num-machines 9",
        ),
        (["deepspeed", "--launcher=slurm"], "--hostfile=/run/hostfile --launcher=slurm"),
    ],
)
def test_launchers_without_environment_variables_get_their_flags(
    runner: Runner, command: list[str], flags: str
) -> None:
    """Stand-ins of these names show what they were told; that the real accelerate takes it is seen by scripts/chaos."""
    bin_folder = runner.code / "bin"
    bin_folder.mkdir()
    (bin_folder / command[0]).write_text(TELL_WORDS)
    (bin_folder / command[0]).chmod(0o755)
    runner.environment.update(WHERE, HF_HOME=str(runner.code / "none"))
    words = ("--per", "node", "--ranks-per-node", "2", "--", str(bin_folder / command[0]), *command[1:], "train.py")
    assert runner.run(2, *words) == 0
    assert " ".join(runner.log(0).split()).removeprefix("launch ") == f"{flags} train.py"
    if "launcher" not in flags:
        assert "machine_rank=1" in runner.log(1) or "node_rank=1" in runner.log(1)


def test_the_users_own_accelerate_config_says_how_processes_work_together(runner: Runner) -> None:
    (runner.code / "accelerate").mkdir()
    (runner.code / "accelerate" / "default_config.yaml").write_text("distributed_type: FSDP\n")
    (runner.code / "bin").mkdir()
    (runner.code / "bin" / "accelerate").write_text(TELL_WORDS)
    (runner.code / "bin" / "accelerate").chmod(0o755)
    runner.environment["HF_HOME"] = str(runner.code)
    words = ("--per", "node", "--ranks-per-node", "2", "--", str(runner.code / "bin" / "accelerate"), "launch", "x.py")
    assert runner.run(1, *words) == 0
    assert "--num_processes=2" in runner.log(0)
    assert "--multi_gpu" not in runner.log(0)


def test_a_command_may_do_without_the_words_of_torchrun(runner: Runner) -> None:
    assert runner.run(1, "--distributed", "off", "--", "env") == 0
    names = {line.partition("=")[0] for line in runner.log(0).splitlines()}
    assert not names & set(ENVIRONMENT[:-1])
    assert "SLURMOPT_ATTEMPT" in names


def test_once_per_job_the_command_is_no_rank_and_its_child_reports_steps(runner: Runner) -> None:
    runner.module("train", REPORTS + "\nimport os\nprint('rank', os.environ.get('RANK'), flush=True)\n")
    assert runner.run(1, "--per", "job", "--", PYTHON, "train.py") == 0
    assert "rank None" in runner.log(0)
    beat = runner.beat(0)
    assert beat is not None
    assert beat.step == 1000


BELOW_A_SHELL = """
import os, signal, sys, time
def leave(*_):
    print('told', flush=True)
    time.sleep(0.5)  # it saves
    open('saved', 'w').write('x')
    sys.exit(75)
signal.signal(int(sys.argv[1]), leave)
print('ready', flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("per", ["rank", "node", "job"])
@pytest.mark.parametrize(("sent", "forward"), [("USR1", "USR1"), ("USR1", "TERM"), ("USR1", "HUP"), ("TERM", "USR1")])
def test_a_signal_reaches_the_process_that_waits_for_it_below_a_shell(
    runner: Runner, per: str, sent: str, forward: str
) -> None:
    runner.module("train", BELOW_A_SHELL)
    caught = signal.SIGTERM if sent == "TERM" else signal.Signals[f"SIG{forward}"]
    script = f"{PYTHON} train.py {int(caught)}; exit $?"
    process = runner.start(1, "--per", per, "--forward", forward, "--", "bash", "-c", script)
    runner.wait_for_log(0, "ready")
    send(process, signal.Signals[f"SIG{sent}"])
    assert runner.finish(process) == 75, runner.log(0)
    assert (runner.code / "saved").exists()


def test_what_a_shell_waited_for_saves_although_the_shell_has_died_of_the_signal(runner: Runner) -> None:
    """As Slurm without proctrack/cgroup does it, a signal goes to all processes of a step."""
    runner.module("train", BELOW_A_SHELL)
    process = runner.start(1, "--", "bash", "-c", f"echo shell $$; {PYTHON} train.py {int(signal.SIGTERM)}; exit $?")
    runner.wait_for_log(0, "ready")
    send(process, signal.SIGTERM)
    runner.wait_for_log(0, "told")
    os.kill(int(runner.log(0).split("shell ")[1].split()[0]), signal.SIGTERM)
    assert runner.finish(process) == 137
    assert "SIGTERM" in runner.result()["error"]
    assert (runner.code / "saved").exists()


@pytest.mark.parametrize("per", ["rank", "job"])
def test_an_exit_trap_of_a_shell_does_not_keep_the_signal_from_what_it_waits_for(runner: Runner, per: str) -> None:
    """With such a trap the shell catches each signal that would end it, runs the trap and ends."""
    runner.module("train", BELOW_A_SHELL)
    script = f"trap 'echo cleaned up' EXIT; {PYTHON} train.py {int(signal.SIGUSR1)}; exit $?"
    process = runner.start(1, "--per", per, "--forward", "USR1", "--", "bash", "-c", script)
    runner.wait_for_log(0, "ready")
    send(process, signal.SIGUSR1)
    assert runner.finish(process) != 0
    assert "cleaned up" in runner.log(0)
    assert (runner.code / "saved").exists()


def test_a_script_below_a_shell_whose_thread_waits_for_the_signal_gets_it(runner: Runner) -> None:
    """It blocks the signal, and a thread takes it by sigwait: no handler is to be seen."""
    train = """
import os, signal, threading, time
def leave():
    signal.sigwait([signal.SIGUSR1])
    print("told", flush=True)
    os._exit(75)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
threading.Thread(target=leave).start()
print("ready", flush=True)
time.sleep(100)
"""
    runner.module("train", train)
    process = runner.start(1, "--forward", "USR1", "--", "bash", "-c", f"{PYTHON} train.py; exit $?")
    runner.wait_for_log(0, "ready")
    send(process, signal.SIGUSR1)
    assert runner.finish(process) == 75
    assert "told" in runner.log(0)


def test_what_a_command_leaves_in_the_background_becomes_no_zombie(runner: Runner) -> None:
    """Each would count against the limit of processes for as long as the training runs."""
    train = """
import os, subprocess, time
for _ in range(5):
    os.system("sleep 0.1 &")
def states():
    said = subprocess.run(["ps", "-o", "comm=,state=", "--ppid", str(os.getppid())], capture_output=True, text=True)
    return [line.split() for line in said.stdout.splitlines()]
until = time.monotonic() + 30
while any(name == "sleep" for name, *_ in states()) and time.monotonic() < until:
    time.sleep(0.05)
print("left", [one for one in states() if one[0] == "sleep"])
"""
    runner.module("train", train)
    assert runner.run(1, "--", PYTHON, "train.py") == 0
    assert "left []" in runner.log(0)


@pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: mounting /proc needs root")
def test_processes_are_found_where_proc_hides_those_of_others() -> None:
    code = "import os, subprocess; from slurmopt.job.facts import process_tree; "
    code += "child = subprocess.Popen(['sleep', '9']); "
    code += "print(process_tree.descendants(os.getpid()) == [child.pid]); child.kill()"
    hidden = 'mount -t proc -o hidepid=1 proc /proc && exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"'
    command = ["unshare", "--mount", "sh", "-c", hidden, "sh", PYTHON, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.stdout == "True\n", said.stderr


def test_a_look_at_a_command_that_ends_does_not_take_its_status_from_who_waits_for_it() -> None:
    """A signal comes on a thread of its own, often at the very moment at which the command ends."""
    for _ in range(50):
        process = subprocess.Popen(["sh", "-c", "exit 7"])
        looking = threading.Thread(
            target=lambda pid: [None for _ in iter(lambda: process_tree.is_running(pid), False)], args=(process.pid,)
        )
        looking.start()
        process_tree.wait(process.pid)
        looking.join()
        assert process.wait() == 7


def test_all_that_is_below_a_process_is_ended_but_the_child_that_is_spared() -> None:
    code = (
        "import subprocess; from slurmopt.job.facts import process_tree\n"
        "process_tree.adopt_orphans()\n"
        "spared = subprocess.Popen(['sleep', '60'])\n"
        "shell = subprocess.Popen(['setsid', 'sh', '-c', 'sleep 60 & wait'])\n"
        "process_tree.clear_up(spared=spared.pid)\n"
        "print(process_tree.is_running(spared.pid), process_tree.is_running(shell.pid))\n"
        "process_tree.clear_up()\n"
        "print(process_tree.is_running(spared.pid))"
    )
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, timeout=180, check=True)
    assert done.stdout.split() == ["True", "False", "False"]
