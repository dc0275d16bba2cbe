"""Another user of the node, who squats the run's port, floods what listens, and writes into each store."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job.harness import Runner, wait_for

from slurmopt.job.facts import process_tree
from slurmopt.run_folder import events

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed"),
]
SOMEBODY_ELSE = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
TRAIN = """
import os, pathlib, time
import torch.distributed as dist
from slurmopt import current_run
from slurmopt.checkpoint import Checkpointer
from slurmopt.job.worker.coordinated_stop import CoordinatedStop

def main(config):
    if os.environ.get("OWN_GROUP"):
        dist.init_process_group("gloo", init_method="env://")
    rank, attacked, left = dist.get_rank(), pathlib.Path("attacked"), 25
    key = [os.urandom(32)]
    dist.broadcast_object_list(key)
    stop, state = CoordinatedStop(rank, 2, key[0]), {"step": 0}
    with Checkpointer({"shared": {"every": 1}}, current_run()) as checkpointer:
        for step in range(1, 100_000):
            seen = [attacked.exists()]
            dist.broadcast_object_list(seen)
            left -= seen[0]
            state["step"] = step
            if seen[0]:
                checkpointer.save(step, state)
            if step == 3:
                pathlib.Path(f"trains-{rank}").touch()
            if stop.due(step):
                raise RuntimeError("told to stop")
            if not left:
                break
            time.sleep(0.1)
        checkpointer.wait()
    return {"world": dist.get_world_size(), "port": int(os.environ["MASTER_PORT"])}

main.makes_process_group = bool(os.environ.get("OWN_GROUP"))
"""
SQUAT = """
import socket, sys
held = socket.create_server(("", int(sys.argv[1])), backlog=16)
print("held", flush=True)
came = []
while True:
    came.append(held.accept())
"""
FLOOD = """
import resource, socket, sys, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
held = []
def flood(host, port):
    for number in range(450):
        try:
            held.append(socket.create_connection((host, port), timeout=1))
            if number % 3 == 0:
                held[-1].sendall(b"\\0" * 4096)
        except OSError:
            pass
threads = []
for where in sys.argv[1:]:
    host, _, port = where.rpartition(":")
    threads.append(threading.Thread(target=flood, args=(host, int(port))))
    threads[-1].start()
for thread in threads:
    thread.join(4)
print("flooded", flush=True)
sys.stdin.read()
"""
WRITE = """
import sys, threading, time
from datetime import timedelta
import torch.distributed as dist
written = 0
def write(host, port):
    global written
    store = dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=3), wait_for_workers=False)
    for prefix in ("", "default_pg/0//", "slurmopt/default_pg/0//"):
        for word in ("asked", "at", "promise/0", "promise/1"):
            for number in range(1, 4):
                store.set(f"{prefix}slurmopt/stop/{number}/{word}", "0" if word == "at" else "7")
    for key in store.list_keys():
        if key.endswith(("/asked", "/at")) or "/promise/" in key:
            store.set(key.removeprefix("/"), "7")
    written += 1
threads = []
for where in sys.argv[1:]:
    host, _, port = where.rpartition(":")
    threads.append(threading.Thread(target=write, args=(host, int(port)), daemon=True))
    threads[-1].start()
deadline = time.monotonic() + 5
for thread in threads:
    thread.join(max(0, deadline - time.monotonic()))
print("written", written, flush=True)
import os
os._exit(0)
"""


@contextlib.contextmanager
def somebody_else(code: str, *words: str) -> Iterator[str]:
    """Runs `code` as another user until it says something, and lets it go on; what it has said."""
    command = [*SOMEBODY_ELSE, sys.executable, "-c", code, *words]
    quiet = {"stderr": subprocess.DEVNULL, "cwd": "/"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **quiet)  # type: ignore[call-overload]
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(autouse=True, scope="module")
def _he_may_run_this_python() -> None:
    ran = subprocess.run([*SOMEBODY_ELSE, sys.executable, "-c", "import torch"], capture_output=True, cwd="/")
    if ran.returncode:
        pytest.skip("somebody else may not run this Python")


def listening(pid: int) -> list[str]:
    """Each address and port at which a process below `pid` listens."""
    found = []
    sockets = set()
    for each in [pid, *process_tree.descendants(pid)]:
        with contextlib.suppress(OSError):
            sockets |= {os.readlink(entry) for entry in Path(f"/proc/{each}/fd").iterdir()}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                host, port = words[1].split(":")
                everywhere = set(host) == {"0"}
                host = "127.0.0.1" if everywhere or name == "tcp6" else socket.inet_ntoa(bytes.fromhex(host)[::-1])
                found.append(f"{host}:{int(port, 16)}")
    return found


def attacked(runner: Runner, *, flood: bool) -> tuple[int, str]:
    """Starts two ranks, lets somebody else loose on them while they train, and waits for their end; how many stores
    took his word, and where they listened."""
    runner.module("trains", TRAIN)
    process = runner.start(2, "--heartbeat", "0.3", "--timeout", "40", "--function", "trains.main")
    try:
        for rank in range(2):
            wait_for(lambda: (runner.code / f"trains-{rank}").exists() or process.poll() is not None, "the training")  # noqa: B023
        assert process.poll() is None, runner.log(0) + runner.log(1)
        for pid in process_tree.descendants(process.pid):
            if b"slurmopt.checkpoint.writer.main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (300, 300))  # of a rank gloo's listeners would take all
        places = listening(process.pid)
        with somebody_else(WRITE, *places) as said, contextlib.ExitStack() as holds:
            if flood:
                assert holds.enter_context(somebody_else(FLOOD, *places)) == "flooded"
            (runner.code / "attacked").touch()
            status = runner.finish(process)
    finally:
        process.kill()
    assert status == 0, runner.story + runner.log(0) + runner.log(1)
    return int(said.split()[1]), " ".join(places)


def test_a_run_goes_on_and_saves_while_somebody_else_squats_floods_and_writes(runner: Runner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    runner.environment["MASTER_PORT"] = str(port)
    with somebody_else(SQUAT, str(port)) as said:
        assert said == "held"
        believed, places = attacked(runner, flood=True)
    assert runner.result()["result"]["world"] == 2
    assert runner.result()["result"]["port"] != port
    assert believed == 0, f"{believed} of {places} believed a stranger"
    saves = [event["event"] for event in events.read(runner.folder.events)]
    assert "checkpoint-failed" not in saves
    assert "checkpoint" in saves
    assert all(place.startswith("127.0.0.1:") for place in places.split()), places
    secret = runner.folder.rendezvous(0)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_somebody_elses_word_in_torchs_own_store_stops_nobody(runner: Runner) -> None:
    """The training makes its process group itself: torch's store takes what anybody writes."""
    runner.environment["OWN_GROUP"] = "yes"
    believed, _ = attacked(runner, flood=False)
    assert believed == 1  # or there is nothing to show
    assert runner.result()["result"]["world"] == 2


def test_a_file_of_somebody_elses_is_not_taken_for_the_secret(runner: Runner) -> None:
    runner.make_folders()
    planted = runner.folder.rendezvous(0)
    planted.write_text("00" * 32 + "\n127.0.0.1 9\n")
    os.chown(planted, 65534, 65534)
    runner.module("trains", "def main(config):\n    pass\n")
    assert runner.run(2, "--timeout", "5", "--function", "trains.main") != 0
    assert "is not a file of the run's owner" in runner.log(0)
    assert runner.last_event()["cause"] == "infrastructure"
