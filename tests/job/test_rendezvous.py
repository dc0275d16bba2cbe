"""Where the ranks meet, when somebody else listens at the port that they were told."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from job.harness import Runner, alive, wait_for

from slurmopt.job.facts import process_tree
from slurmopt.job.rendezvous import gate as gate_module
from slurmopt.job.rendezvous import store_client, store_server
from slurmopt.job.rendezvous.addresses import listen
from slurmopt.job.rendezvous.gate import Gate, Unproven, connect
from slurmopt.job.rendezvous.store_client import connected, torch_store

SECRET = b"of this test alone"
KEY = bytes(range(32))

TRAIN = (
    "import os, torch, torch.distributed as dist\n"
    "def train(config):\n"
    "    total = torch.ones(1)\n"
    "    dist.all_reduce(total)\n"
    "    return {'world': int(total), 'port': int(os.environ['MASTER_PORT'])}\n"
)
FOREIGN_STORE = (
    "import sys, torch.distributed as dist\n"
    "store = dist.TCPStore('127.0.0.1', int(sys.argv[1]), is_master=True, wait_for_workers=False)\n"
    "print('serving', flush=True)\n"
    "sys.stdin.read()\n"
    "print(store.num_keys())\n"
)


BUSY = (
    "import ctypes, os, pathlib, time, torch.distributed as dist\n"
    "held, free = pathlib.Path('held'), pathlib.Path('free')\n"
    "def train(config):\n"
    "    store = dist.distributed_c10d._get_default_store()\n"
    "    if dist.get_rank() == 0:\n"
    "        held.touch()\n"
    "        ctypes.PyDLL(None).sleep(4)  # no other thread of rank 0 runs\n"
    "        free.touch()\n"
    "        return {'early': store.get('early').decode()}\n"
    "    while not held.exists():\n"
    "        time.sleep(0.01)\n"
    "    time.sleep(0.5)\n"
    "    store.set('of rank 1', 'x')\n"
    "    store.set('early', str(not free.exists()))\n"
)


FORKS = """
import os, signal, sys
sys.path.insert(0, os.path.dirname(os.getcwd()))
from job.test_rendezvous import store_process
_, store, life = store_process()
worker = os.fork()
if worker:
    print(store, worker, flush=True)
signal.pause()
"""


def store_process() -> tuple[Any, int, IO[bytes]]:
    """Rank 0's store in its process: a client, the process's id, and what keeps it alive."""
    listener = listen("127.0.0.1")
    place, inode = listener.getsockname()[:2], os.fstat(listener.fileno()).st_ino
    life = store_server.start(listener, KEY)
    client = connected(place, KEY, 1, 60, 30)
    client.address, client.another = place, lambda: connect(place, KEY, "store", 2, 0, 30)  # type: ignore[attr-defined]
    return client, _holder(f"socket:[{inode}]"), life


def _holder(what: str) -> int:
    """The process that has it open."""
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry) == what:
                return int(entry.parts[2])
    raise AssertionError(f"no process has {what}")


def _median_seconds(client: Any) -> float:
    """Of one question."""
    times = [time.monotonic()]
    for _ in range(31):
        client.check(["a"])
        times.append(time.monotonic())
    return statistics.median(after - before for before, after in pairwise(times))


@contextmanager
def mute_listener() -> Iterator[int]:
    """It is connected to, and never says a word; its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as held:
        yield held.getsockname()[1]


def test_a_port_that_somebody_holds_is_passed_by(runner: Runner) -> None:
    runner.module("meets", TRAIN)
    with mute_listener() as port:
        runner.environment["MASTER_PORT"] = str(port)
        assert runner.run(2, "--timeout", "40", "--function", "meets.train") == 0, runner.story + runner.log(0)
    result = runner.result()["result"]
    assert result["world"] == 2
    assert result["port"] != port


def test_the_store_answers_while_rank_0_cannot(runner: Runner) -> None:
    runner.module("busy", BUSY)
    assert runner.run(2, "--timeout", "40", "--function", "busy.train") == 0, runner.story + runner.log(0)
    assert runner.result()["result"] == {"early": "True"}


def test_no_rank_destroys_its_group_while_another_still_creates_it(runner: Runner) -> None:
    """gloo failed in the slower rank, if the function of the faster one took milliseconds."""
    runner.module(
        "late",
        "import os, pathlib, time, torch.distributed as dist\n"
        "create, destroy, created = dist.init_process_group, dist.destroy_process_group, pathlib.Path('created')\n"
        "def slowly(*words, **options):\n"
        "    create(*words, **options)\n"
        "    time.sleep(1.0)  # this rank takes longer than the function of the other\n"
        "    created.touch()\n"
        "def told():\n"
        "    print('destroyed', 'after' if created.exists() else 'before')\n"
        "    destroy()\n"
        "if os.environ['RANK'] == '0':\n"
        "    dist.init_process_group = slowly\n"
        "else:\n"
        "    dist.destroy_process_group = told\n",
    )
    runner.module("train", "def main(config):\n    return 1\n")
    assert runner.run(2, "--import", "late", "--function", "train.main") == 0, runner.log(0)
    assert "destroyed after" in runner.log(1)


def test_the_store_lives_as_long_as_who_started_it_whatever_signals_come() -> None:
    client, process, life = store_process()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(process, number)
    client.set("a", "1")
    assert client.get("a") == b"1"
    life.close()
    wait_for(lambda: not alive(process), "the store's end")


def test_a_training_neither_waits_for_the_store_nor_ends_it_with_its_children() -> None:
    _, process, _ = store_process()
    assert process not in process_tree.descendants(os.getpid())
    with pytest.raises(ChildProcessError):
        os.waitpid(process, os.WNOHANG)


def test_the_store_ends_with_who_started_it_whatever_that_one_has_forked() -> None:
    """A data loader's workers have all that was open, the pipe that tells of the end included."""
    words = [sys.executable, "-c", FORKS]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent) as rank:
        assert rank.stdout is not None
        store, worker = map(int, rank.stdout.readline().split())
        assert alive(store)
        rank.kill()
        try:
            wait_for(lambda: not alive(store), "the store's end")
            assert alive(worker)
        finally:
            os.kill(worker, signal.SIGKILL)


def test_the_store_answers_as_quickly_where_no_file_descriptor_is_left() -> None:
    client, process, _ = store_process()
    usual = _median_seconds(client)
    limits = (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    before = resource.prlimit(process, resource.RLIMIT_NOFILE, limits)
    with socket.create_connection(client.address), ThreadPoolExecutor(1) as pool:
        another = pool.submit(client.another)
        assert _median_seconds(client) < 50 * usual
        resource.prlimit(process, resource.RLIMIT_NOFILE, before)
        another.result(20).close()


def test_connections_that_many_threads_needed_are_given_back() -> None:
    client, process, _ = store_process()
    before = len(os.listdir(f"/proc/{process}/fd"))
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(client.get, "late") for _ in range(8)]
        wait_for(lambda: len(os.listdir(f"/proc/{process}/fd")) >= before + 7, "a connection for each")
        client.set("late", "1")
        assert [each.result(20) for each in waiting] == [b"1"] * 8
    wait_for(lambda: len(os.listdir(f"/proc/{process}/fd")) <= before + 1, "the end of the others")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")
def test_a_rank_that_asks_for_nonsense_is_told_so_and_goes_on() -> None:
    import torch.distributed as dist

    client, _, _ = store_process()
    client.set("a", "no number")
    with pytest.raises(dist.DistStoreError, match=r"cannot answer: .*no number"):
        client.add("a", 1)
    assert client.get("a") == b"no number"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")
def test_a_store_that_stands_still_is_not_waited_for_by_new_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    monkeypatch.setattr(store_client, "_RECONNECT_SECONDS", 0.5)
    client, process, _ = store_process()
    os.kill(process, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(client.get, "a", 600)
        wait_for(waits.running, "the one that has the connection")
        wait_for(lambda: not client._idle, "the one that has the connection")
        try:
            with pytest.raises(dist.DistNetworkError, match="does not answer"):
                client.get("b", 600)
        finally:
            os.kill(process, signal.SIGKILL)
        with pytest.raises(dist.DistNetworkError):
            waits.result(30)


def test_the_kernel_asks_at_both_ends_whether_the_other_node_is_there() -> None:
    listener = listen("127.0.0.1")
    came: list[socket.socket] = []
    gate = Gate(listener, SECRET, "store", lambda connection, _: came.append(connection))
    gate.start()
    with connect(gate.address, SECRET, "store", 1, 0, 20) as there:
        wait_for(lambda: came, "the connection")
        for end in (there, came[0]):
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")
def test_a_store_that_fails_keeps_no_rank_waiting() -> None:
    import torch.distributed as dist

    client, process, _ = store_process()
    memory = int(Path(f"/proc/{process}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(process, resource.RLIMIT_AS, (memory + 2**22, memory + 2**22))
    with pytest.raises(dist.DistNetworkError):
        client.set("a", "x" * 2**26)
    wait_for(lambda: not alive(process), "the store's end")


def test_ranks_write_nothing_into_the_store_of_another_run(runner: Runner) -> None:
    runner.module("meets", TRAIN)
    with mute_listener() as port:
        pass
    foreign = subprocess.Popen(
        [sys.executable, "-c", FOREIGN_STORE, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert foreign.stdout is not None
    assert foreign.stdout.readline() == "serving\n"
    runner.environment["MASTER_PORT"] = str(port)
    status = runner.run(3, "--timeout", "40", "--function", "meets.train")
    keys, _ = foreign.communicate()
    assert status == 0, runner.story + runner.log(0)
    assert runner.result()["result"]["world"] == 3
    # what torch's client leaves of its own when it connects
    assert int(keys) <= 1


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")
def test_the_attempts_store_does_what_torchs_own_does() -> None:
    """Each call's answer, in both; large values, several waiting threads and keys that never come included."""
    import torch.distributed as dist

    expected = _answers(dist.TCPStore("127.0.0.1", 0, is_master=True))
    assert _answers(attempt_store()) == expected
    assert _answers(dist.PrefixStore("p", attempt_store())) == expected
    waits = attempt_store()
    with pytest.raises(dist.DistStoreError, match="wait timeout after 100ms, keys: never"):
        waits.wait(["never"], timedelta(seconds=0.1))
    with ThreadPoolExecutor(8) as pool:
        late = [pool.submit(waits.get, f"late/{number % 4}") for number in range(8)]
        for number in range(4):
            dist.PrefixStore("late", waits).set(str(number), "x" * 2**20 * number)
        assert [len(each.result(20)) for each in late] == [2**20 * (number % 4) for number in range(8)]


def test_a_proof_for_one_port_is_worth_nothing_at_another() -> None:
    """Somebody who stands between two ranks and passes on what they say."""
    admitted: list[int] = []
    gate = Gate(listen("127.0.0.1"), SECRET, "store", lambda connection, number: admitted.append(number))
    gate.start()
    with socket.create_server(("127.0.0.1", 0)) as between:
        passing = threading.Thread(target=_pass_on, args=(between, gate.address), daemon=True)
        passing.start()
        with pytest.raises(Unproven):
            connect(between.getsockname()[:2], SECRET, "store", 1, 0, 0.3)
    connect(gate.address, SECRET, "store", 2, 0, 20).close()
    wait_for(lambda: admitted, "the one that came by itself")
    assert admitted == [2]
    with pytest.raises(Unproven):
        connect(gate.address, SECRET, "checkpoint", 3, 0, 0.2)


def test_a_proof_that_waits_for_a_busy_gate_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the gate's process could not look: what came in time is read before a connection is dropped."""
    busy, go, admitted = threading.Event(), threading.Event(), []

    def admit(connection: socket.socket, number: int) -> None:
        admitted.append(number)
        if number == 1:
            busy.set()
            go.wait(30)

    gate = Gate(listen("127.0.0.1"), SECRET, "store", admit)
    gate.start()
    with socket.create_connection(gate.address, 30) as late:
        asked = _asked(late, 2)
        connect(gate.address, SECRET, "store", 1, 0, 20).close()
        busy.wait(30)
        late.sendall(asked)
        monkeypatch.setattr(gate_module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 3600))
        go.set()
        assert late.recv(32)
    wait_for(lambda: admitted == [1, 2], "the one whose proof had waited")


def _asked(connection: socket.socket, number: int) -> bytes:
    """What a rank sends once it was greeted."""
    nonces, place = connection.recv(32) + KEY, gate_module._place(connection.getpeername())
    return gate_module._ASKED.pack(number, KEY, gate_module._proof(SECRET, "ask", "store", number, place, nonces))


def _pass_on(between: socket.socket, address: tuple[str, int]) -> None:
    with contextlib.suppress(OSError):
        while True:
            came, _ = between.accept()
            with came, socket.create_connection(address) as there:
                came.sendall(there.recv(1000))
                there.sendall(came.recv(1000))
                came.sendall(there.recv(1000))


def attempt_store() -> Any:
    client, _, life = store_process()
    store = torch_store(client, 30)
    store.life = life
    return store


def _answers(store: Any) -> list[Any]:
    return [
        store.set("a", "1"),
        store.get("a"),
        store.add("a", 4),
        store.add("new", 2),
        store.get("new"),
        store.check(["a", "new"]),
        store.check(["a", "nothing"]),
        store.compare_set("a", "6", "7"),
        store.compare_set("a", "5", "7"),
        store.compare_set("b", "expected", "7"),
        store.compare_set("b", "", "7"),
        store.check(["b"]),
        store.append("c", "x"),
        store.append("c", "y"),
        store.multi_get(["b", "c"]),
        store.multi_set(["d", "e"], ["1", "2"]),
        store.get("e"),
        store.wait(["d", "e"]),
        store.delete_key("e"),
        store.delete_key("e"),
        store.check(["e"]),
        store.num_keys(),
    ]
