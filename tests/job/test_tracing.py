"""Traces of a process: who is asked, Kineto's packets, a full disk, and a request that Kineto drops."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from job.harness import wait_for

from slurmopt.job.profiling import kineto
from slurmopt.job.profiling.askers import Askers, OneProcess
from slurmopt.job.profiling.export import Export, ExportError
from slurmopt.job.profiling.tracing import Tracing
from slurmopt.job.watchdog.hang_detector import Allowance
from slurmopt.job.watchdog.watchdog import Watchdog
from slurmopt.run_folder import captures
from slurmopt.run_folder.captures import Capture
from slurmopt.run_folder.layout import RunFolder

HEAD = struct.Struct("=Q32s")
TRACE = '{"traceEvents": [' + ", ".join(json.dumps({"name": os.urandom(8).hex()}) for _ in range(8000)) + "]"


def packet(kind: bytes, body: bytes) -> bytes:
    return HEAD.pack(len(body), kind) + body


def test_the_packets_of_kineto() -> None:
    body = struct.pack("=iiq3i", 3, 3, 0, 40, 30, 1)
    assert kineto.question(packet(b"req", body)) == kineto.Question(b"req", (40, 30, 1), is_free=True)
    busy = kineto.question(packet(b"req", struct.pack("=iiqi", 1, 1, 0, 40)))
    assert busy is not None
    assert not busy.is_free
    context = kineto.question(packet(b"ctxt", struct.pack("=iiq", 0, 40, 0)))
    assert context is not None
    assert kineto.answer(context) == packet(b"ctxt", struct.pack("=i", 1))
    assert kineto.answer(busy, "A=b\n") == packet(b"req", b"A=b\n")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 39,
        packet(b"req", b""),
        packet(b"req", struct.pack("=iiq", 3, 0, 0)),
        packet(b"req", struct.pack("=iiqi", 3, 2, 0, 1)),
        packet(b"req", struct.pack("=iiqi", 3, -1, 0, 1)),
        packet(b"other", b"x"),
        HEAD.pack(1 << 60, b"req"),
    ],
)
def test_what_is_no_packet_of_kineto(data: bytes) -> None:
    assert kineto.question(data) is None


TORCHRUN = {
    10: {"RANK": "1", "WORLD_SIZE": "2"},  # torchrun on the second node, with what slurmopt has set for that
    11: {"RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none"},
    12: {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none"},
    13: {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none"},  # spawned by a DataLoader
}


def test_the_ranks_of_torchrun_are_told_from_torchrun_and_from_workers() -> None:
    askers = Askers(1, lambda pid: TORCHRUN[pid])
    for pid, above in ((10, (1,)), (11, (10, 1)), (12, (10, 1)), (13, (12, 10, 1))):
        askers.add(pid, above)
    assert [askers.rank_of(pid) for pid in (10, 11, 12, 13)] == [None, 2, 3, None]


def test_a_command_of_one_rank() -> None:
    of_shell = {"RANK": "5"}
    askers = Askers(5, lambda pid: of_shell)
    askers.add(20, (19, 1))  # its shell, 19, never asks
    assert askers.rank_of(20) == 5
    assert Askers(0, lambda pid: {}).rank_of is not None
    nameless = Askers(0, lambda pid: {})
    nameless.add(20, (1,))
    assert nameless.rank_of(20) == 0


def test_a_function_is_its_own_process() -> None:
    askers = OneProcess(3)
    askers.add(os.getpid(), (1,))
    askers.add(1, ())
    assert (askers.rank_of(os.getpid()), askers.rank_of(1)) == (3, None)


def capture(start: float, ranks: list[int]) -> Capture:
    now = time.time()
    name, reason = "a0-now", captures.ASKED
    return Capture(name=name, attempt=0, reason=reason, requested_at=now, start=start, seconds=0.2, ranks=ranks)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 KB."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: mounting a small file system needs root")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "none", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


def export(folder: Path, target: Path, start: float | None = None) -> Export:
    start = time.time() - 10 if start is None else start
    return Export(folder / "t.json", 7, start, 0.1, target, lambda: True)


def test_a_trace_is_stored_whole_and_private(tmp_path: Path) -> None:
    (tmp_path / "t_7.json").write_text(TRACE)
    stored = export(tmp_path, tmp_path / "rank-0.json.gz")
    waiting = threading.Thread(target=stored.wait)
    waiting.start()
    with open(tmp_path / "t_7.json", "a") as file:  # it is not taken before it is complete
        assert waiting.is_alive()
        file.write(', "traceName": "t_7.json"\n}\n')
    waiting.join(10)
    assert stored.store() == (tmp_path / "rank-0.json.gz").stat().st_size
    assert json.loads(gzip.decompress((tmp_path / "rank-0.json.gz").read_bytes()))["traceName"]
    assert [path.name for path in tmp_path.iterdir()] == ["rank-0.json.gz"]
    assert (tmp_path / "rank-0.json.gz").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_of_the_run_folder(tmp_path: Path, small: Path) -> None:
    (tmp_path / "t_7.json").write_text(TRACE + ', "traceName": "t_7.json"}')
    with pytest.raises(ExportError, match=f"No space left on device in {small}"):
        export(tmp_path, small / "rank-0.json.gz").store()
    assert list(small.iterdir()) == []
    assert not (tmp_path / "t_7.json").exists()


def test_a_process_that_ends(tmp_path: Path) -> None:
    gone = Export(tmp_path / "t.json", 7, time.time() - 10, 0.1, tmp_path / "rank-0.json.gz", lambda: False)
    with pytest.raises(ExportError, match="its process ended before the trace was complete"):
        gone.wait()


def test_a_request_that_kineto_drops_is_made_again_a_few_times(tmp_path: Path) -> None:
    dropped = export(tmp_path, tmp_path / "rank-0.json.gz", time.time() + 1)
    (tmp_path / "t_7.json.tmp").touch()  # Kineto of torch 2.13 makes it before it looks at the time
    first = dropped.start
    assert dropped.begin_again()
    assert dropped.start > max(first, time.time() + kineto.WARM_UP)
    assert not dropped.begin_again()  # that start is yet to come
    for _ in range(2):
        dropped.start = time.time()
        again = dropped.begin_again()
    assert not again
    with pytest.raises(ExportError, match="its profiler did not begin, though it was asked 3 times"):
        dropped.wait()


def test_a_process_that_writes_is_not_asked_again(tmp_path: Path) -> None:
    (tmp_path / "t_7.json.tmp").write_text(TRACE)
    assert not export(tmp_path, tmp_path / "rank-0.json.gz").begin_again()


LOOP = """
import sys, torch
while True:
    torch.ones(2) + 1
"""


def fill(path: Path) -> None:
    """Writes until the disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1024))


def test_a_full_disk_of_the_node(run: RunFolder, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(small))
    tracing = Tracing(run, 0, "node1", Askers(0))
    assert len(os.fsencode(tracing.folder)) <= kineto.PATH_ROOM
    variables = {**os.environ, **kineto.variables(tracing.folder, {}), "RANK": "0", "OMP_NUM_THREADS": "1"}
    training = subprocess.Popen([sys.executable, "-c", LOOP], env=variables)
    filler = small / "filler"
    fill(filler)  # how much a trace needs depends on how often the training gets a CPU
    try:
        captures.open_capture(run, capture(time.time() + 3, [0]))
        told = wait_for(lambda: _final(run), "the end of the trace")
        assert "no space left on device for the trace" in told["error"]
        assert training.poll() is None
    finally:
        training.kill()
        training.wait()
        tracing.close()
        filler.unlink()
    assert list(small.iterdir()) == []


def _final(run: RunFolder) -> dict[str, object] | None:
    told = captures.results(run.capture("a0-now")).get(0)
    return told if captures.is_final(told) else None


def test_many_ranks_complete_one_file(run: RunFolder) -> None:
    asked = capture(time.time(), list(range(20)))
    captures.open_capture(run, asked)
    threads = [
        threading.Thread(target=captures.note, args=(run, asked, rank, {"error": str(rank)})) for rank in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = json.loads((run.capture("a0-now") / "capture.json").read_text())
    assert written["ranks"] == {str(rank): {"error": str(rank)} for rank in range(20)}


BESIDE = {"attempt": 0, "reason": "", "requested_at": 0, "start": 1, "seconds": 1, "ranks": [0]}


@pytest.mark.parametrize(
    "value", [[], {}, {"name": 1}, {**BESIDE, "name": "../x"}, {**BESIDE, "name": "a0-x", "seconds": 1e9}]
)
def test_a_request_that_is_none(run: RunFolder, value: object) -> None:
    run.trace_request(0).write_text(json.dumps(value))
    assert captures.requested(run, 0) is None


def test_a_user_with_a_daemon_of_their_own_keeps_it() -> None:
    assert kineto.variables(Path("/x"), {"KINETO_USE_DAEMON": "1"}) == {}
    assert kineto.variables(Path("/x"), {"KINETO_LOG_LEVEL": "1"}).keys() == {
        "KINETO_USE_DAEMON",
        "KINETO_IPC_SOCKET_DIR",
    }


def test_the_watchdog_waits_while_a_trace_is_written_and_no_longer(run: RunFolder) -> None:
    watchdog = Watchdog(run, 0, 2, os.getpid(), Allowance(60, deadline=600, heartbeat=1, interval=5))
    assert watchdog._allowed.steps == 60
    asked = capture(time.time() - 60, [0, 1])
    asked = replace(asked, requested_at=time.time() - 60)
    captures.open_capture(run, asked)
    assert watchdog._allowed.steps == 60  # none of the ranks has answered
    captures.note(run, asked, 0, {"state": "recording"})
    assert watchdog._allowed.steps == watchdog._allowed.patience > 60
    captures.note(run, asked, 0, {"error": "lost"})
    assert watchdog._allowed.steps == 60


def test_what_a_killed_rank_left_is_removed_by_the_next(run: RunFolder, tmp_path: Path, monkeypatch: Any) -> None:
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        monkeypatch.setattr("tempfile.tempdir", str(place))
        alive = Tracing(run, 0, "node1", Askers(0))
        killed = place / "slurmopt-trace-killed"
        killed.mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
            left.bind(str(killed / kineto.SOCKET))
        being_made, of_others = place / "slurmopt-trace-new", place / "other"
        being_made.mkdir()
        of_others.mkdir()
        following = Tracing(run, 0, "node1", Askers(1))
        wait_for(lambda: not killed.exists(), "the folder of the killed one goes")
        assert {*place.iterdir()} == {alive.folder, following.folder, being_made, of_others}
        alive.close()
        following.close()
        assert {*place.iterdir()} == {being_made, of_others}
    finally:
        shutil.rmtree(place)
