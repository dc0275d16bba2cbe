"""Where the ranks meet, when somebody else listens at the port that they were told."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runtime.harness import Runner, wait_for

from slurmopt.runtime import gate as gate_module
from slurmopt.runtime import store_server
from slurmopt.runtime.addresses import listen
from slurmopt.runtime.attempt_secret import attempt_secret
from slurmopt.runtime.gate import Gate, Unproven, connect
from slurmopt.runtime.store_client import connected, torch_store
from slurmopt.runtime.store_server import StoreServer

SECRET = b"of this test alone"
KEY = bytes(range(32))

TRAIN = (
    "import os, torch, torch.distributed as dist\n"
    "def train(config):\n"
    "    total = torch.ones(1)\n"
    "    dist.all_reduce(total)\n"
    "    return {'world': int(total)}\n"
)
AGAIN = (
    "import os, torch, torch.distributed as dist\n"
    "def train(config):\n"
    "    dist.destroy_process_group()\n"
    "    dist.init_process_group('gloo', init_method='env://')\n"
    "    ports = [None] * dist.get_world_size()\n"
    "    dist.all_gather_object(ports, os.environ['MASTER_PORT'])\n"
    "    return ports\n"
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
    assert runner.result()["result"] == {"world": 2}
    assert f"somebody else listens at port {port}" in runner.log(0)


def test_a_function_may_make_its_process_group_anew(runner: Runner) -> None:
    """At MASTER_PORT, where torch's own store can listen then."""
    runner.module("again", AGAIN)
    assert runner.run(2, "--timeout", "40", "--function", "again.train") == 0, runner.story + runner.log(0)
    assert len(set(runner.result()["result"])) == 1


@contextmanager
def read_only(path: Path) -> Iterator[Callable[[], None]]:
    """No process writes there until what this gives is called."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: bind mounts need root")
    subprocess.run(["mount", "--bind", path, path], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", path], check=True)
        yield lambda: subprocess.run(["mount", "-o", "remount,rw,bind", path], check=True)
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_ranks_that_meet_where_they_were_told_write_nothing(runner: Runner) -> None:
    runner.module("meets", TRAIN)
    runner.make_folders()
    attempt_secret(runner.folder, 0)
    with read_only(runner.folder.rendezvous(0)):
        assert runner.run(2, "--timeout", "40", "--function", "meets.train") == 0, runner.story + runner.log(0)
    assert runner.result()["result"]["world"] == 2


@pytest.mark.parametrize("what", ["secret", "address"])
def test_ranks_wait_for_a_run_folder_that_takes_no_writes_for_now(runner: Runner, what: str) -> None:
    """To make the secret, or to say that rank 0 listens elsewhere."""
    runner.module(
        "meets", "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.01)\n" + TRAIN
    )
    runner.make_folders()
    place = runner.folder.rendezvous(0)
    if what == "address":
        attempt_secret(runner.folder, 0)
    with mute_listener() as port, ExitStack() as mounts:
        runner.environment["MASTER_PORT"] = str(port)
        process = runner.start(2, "--heartbeat", "0.3", "--timeout", "40", "--function", "meets.train")
        wait_for(lambda: runner.beat(0) and runner.beat(1), "the ranks")
        mend = mounts.enter_context(read_only(place if what == "address" else place.parent))
        (runner.code / "go").touch()
        wait_for(lambda: "tried again" in runner.log(0) or process.poll() is not None, "rank 0's word")
        mend()
        assert runner.finish(process) == 0, runner.story + runner.log(0)
    assert runner.result()["result"]["world"] == 2


def test_the_batch_shell_leaves_no_half_secret_on_a_full_disk(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: mounting a small file system needs root")
    script = (Path(__file__).parents[1] / "golden" / "function.sbatch").read_text()
    lines = script[script.index("  (umask 077; set -C; od ") :].partition("\nfi\n")[0]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", tmp_path], check=True)
    try:
        (tmp_path / "filler").write_bytes(bytes(4096))
        subprocess.run(["bash", "-c", lines], env={**os.environ, "slurmopt_beats": str(tmp_path)}, check=True)
        assert not (tmp_path / "rendezvous").exists()
        (tmp_path / "filler").unlink()
        subprocess.run(["bash", "-c", lines], env={**os.environ, "slurmopt_beats": str(tmp_path)}, check=True)
        assert len("".join((tmp_path / "rendezvous").read_text().split())) == 64
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_the_store_answers_while_rank_0_cannot(runner: Runner) -> None:
    runner.module("busy", BUSY)
    assert runner.run(2, "--timeout", "40", "--function", "busy.train") == 0, runner.story + runner.log(0)
    assert runner.result()["result"] == {"early": "True"}


def test_the_store_lives_as_long_as_who_started_it_whatever_signals_come() -> None:
    listener = listen("127.0.0.1")
    place = listener.getsockname()[:2]
    process = store_server.start(listener, KEY)
    client = connected(place, KEY, 1, 30, 30)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        process.send_signal(number)
    client.set("a", "1")
    assert client.get("a") == b"1"
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == 0


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
    assert _answers(attempt_store(SECRET)) == expected
    assert _answers(dist.PrefixStore("p", attempt_store(SECRET))) == expected
    waits = attempt_store(SECRET)
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


def attempt_store(secret: bytes) -> Any:
    server = StoreServer(listen("127.0.0.1"), secret)
    return torch_store(connected(server.address, secret, 0, 30, 30), 30)


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
