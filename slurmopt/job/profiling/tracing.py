"""Answers the profilers of this process, or of the processes of a command: whether a trace is asked for, and of when.

A thread sleeps until a process asks, every five seconds; only then it looks for a request in the run folder. So a run
that nobody traces costs nothing but that.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt import log
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.profiling import kineto
from slurmopt.job.profiling.askers import Askers, OneProcess
from slurmopt.job.profiling.export import Export, ExportError
from slurmopt.run_folder import captures
from slurmopt.run_folder.captures import MEMORY, Capture
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.process import started_at

if TYPE_CHECKING:
    from slurmopt.job.memory.stored import MemoryRequests
    from slurmopt.job.profiling.own_requests import OwnRequests

NSYS = "NSYS_PROFILING_SESSION_ID"
_PROFILERS = {"nsys", "ncu", "compute-sanitizer", "rocprof", "rocprofv3"}
"""Programs that are the one subscriber to CUPTI, or its like, in the process that they start."""
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid, as the kernel vouches for them
_PLAIN = re.compile(rb"[A-Za-z0-9_./+-]+")
"""What Kineto takes in a path: `#` begins a comment."""
_PREFIX = "slurmopt-trace-"
_TOO_LATE = 60.0
"""Seconds after its start from which a request counts as that of an earlier process."""
_ONLY_FUNCTIONS = "the memory of a function (task._target_) can be recorded, not that of a command"
_LAST_SECONDS = 5.0
"""For traces that are being stored when the rank ends."""


class Tracing:
    """Answers the processes of one rank, or of one node, until `close`."""

    def __init__(
        self,
        run: RunFolder,
        attempt: int,
        node: str,
        askers: Askers,
        own: OwnRequests | None = None,
        memory: MemoryRequests | None = None,
    ) -> None:
        """Raises OSError if there is no place for a socket. `own`: asks for traces unasked. `memory`: records that of
        this process; None where a command runs."""
        self._own, self._memory = own, memory
        self._run, self._attempt, self._node, self._askers = run, attempt, node, askers
        self._pid = os.getpid()
        self._traces, self.folder = _folders()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._is_closed = False
        self._asked: dict[tuple[str, int], Export | None] = {}
        self._exports: dict[threading.Thread, Export] = {}
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.bind(str(self.folder / kineto.SOCKET))
        except OSError:
            self._remove()
            raise
        self._thread = threading.Thread(target=self._answer_all, name="slurmopt-tracing", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the answers, and waits a few seconds for traces that are being stored. Does nothing in a forked
        child."""
        if os.getpid() != self._pid or self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.sendto(b"", str(self.folder / kineto.SOCKET))
        self._thread.join(_LAST_SECONDS)
        deadline = time.monotonic() + _LAST_SECONDS
        for thread, export in list(self._exports.items()):
            export.leave(_LAST_SECONDS / 2)
            thread.join(max(0.0, deadline - time.monotonic()))
        self._remove()

    def _remove(self) -> None:
        self._socket.close()
        for folder in {self.folder, self._traces}:
            shutil.rmtree(folder, ignore_errors=True)

    def _answer_all(self) -> None:
        _remove_orphans(self.folder.parent)
        while not self._is_closed:
            try:
                data, ancillary, _, sender = self._socket.recvmsg(1 << 16, socket.CMSG_SPACE(_CREDENTIALS.size))
            except OSError as error:
                if not self._is_closed:
                    log.warning(f"slurmopt profile cannot reach this rank any more: {error}")
                return
            pid, uid = _sender(ancillary)
            asked = kineto.question(data)
            if asked is None or uid != os.getuid() or not isinstance(sender, str):
                continue
            packet = kineto.answer(asked, self._configuration(asked, pid) if asked.kind == b"req" else "")
            with contextlib.suppress(OSError):  # that process has ended, or does not read
                self._socket.sendto(packet, socket.MSG_DONTWAIT, sender)

    def _configuration(self, asked: kineto.Question, pid: int) -> str:
        """What the process is to do: nothing, in nearly all cases."""
        self._askers.add(pid, asked.pids[1:])
        rank = self._askers.rank_of(pid)
        if rank is None or not asked.is_free:
            return ""
        try:
            if self._own is not None:
                self._own.look()
            capture = captures.requested(self._run, self._attempt)
        except OSError:  # the file system is away
            return ""
        now = time.time()
        if capture is None or rank not in capture.ranks or now > capture.start + _TOO_LATE:
            return ""
        if (capture.name, rank) in self._asked:
            return self._again(capture, rank)
        self._asked[capture.name, rank] = None
        if capture.kind == MEMORY:
            self._note(
                capture, rank, {"error": _ONLY_FUNCTIONS} if self._memory is None else self._memory.begin(capture)
            )
            return ""
        if self._askers.is_under_nsys(pid):
            self._note(capture, rank, {"error": "Nsight Systems traces it already, and CUPTI has one subscriber"})
            return ""
        return self._begin(capture, rank, asked.pids[0], pid, max(capture.start, now + kineto.LEAST_NOTICE))

    def _begin(self, capture: Capture, rank: int, own_pid: int, pid: int, start: float) -> str:
        """The configuration for a trace, which a thread then waits for. `own_pid` is the process id in the process's
        own PID namespace."""
        path = self._traces / f"{capture.name}-rank-{rank}.json"
        began = started_at(pid)
        target = self._run.capture(capture.name) / f"rank-{rank}.json.gz"
        export = Export(path, own_pid, start, capture.seconds, target, lambda: started_at(pid) == began)
        self._asked[capture.name, rank] = export
        thread = threading.Thread(
            target=self._export, args=(capture, rank, export), name=f"slurmopt-trace-{rank}", daemon=True
        )
        self._exports[thread] = export
        thread.start()
        return kineto.configuration(path, start, capture.seconds, capture.shapes is True)

    def _again(self, capture: Capture, rank: int) -> str:
        """The configuration for a process that is free although its trace is due; mostly there is nothing to do."""
        export = self._asked[capture.name, rank]
        if export is None or not export.begin_again():
            return ""
        return kineto.configuration(export.path, export.start, capture.seconds, capture.shapes is True)

    def _export(self, capture: Capture, rank: int, export: Export) -> None:
        try:
            self._note(capture, rank, {"state": "recording", "start": export.start})
            export.wait()
            self._note(capture, rank, {"state": "writing", "start": export.start})
            size = export.store()
            file = {"file": f"rank-{rank}.json.gz", "bytes": size, "start": round(export.start, 3)}
            self._note(capture, rank, file)
        except ExportError as error:
            self._note(capture, rank, {"error": str(error)})
        finally:
            export.remove()
            self._exports.pop(threading.current_thread(), None)

    def _note(self, capture: Capture, rank: int, result: dict[str, Any]) -> None:
        """Writes how far the trace is. A full disk of the run folder must not end the training."""
        try:
            captures.note(self._run, capture, rank, {"node": self._node, **result})
        except OSError as error:
            log.warning(f"trace {capture.name} of rank {rank}: {error.strerror}: {result.get('error', 'not noted')}")


def _sender(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, int]:
    """The process and the user that have sent a packet."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            pid, uid, _ = _CREDENTIALS.unpack(data)
            return pid, uid
    return 0, -1


def _folders() -> tuple[Path, Path]:
    """New folders for the traces and for the socket, closed to others: in that for temporary files, or in /tmp where
    Kineto cannot take that path."""
    traces = Path(tempfile.mkdtemp(prefix=_PREFIX))
    if _PLAIN.fullmatch(os.fsencode(traces)) is None:
        traces.rmdir()
        traces = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))
    if len(os.fsencode(traces)) <= kineto.PATH_ROOM:
        return traces, traces
    return traces, Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))


def _remove_orphans(place: Path) -> None:
    """Removes the folders of this user's processes that were killed: the kernel refuses connections to their sockets,
    in whatever container they were."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(place):
            if not entry.name.startswith(_PREFIX) or entry.stat(follow_symlinks=False).st_uid != os.getuid():
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
                try:
                    own.connect(f"{entry.path}/{kineto.SOCKET}")
                except ConnectionRefusedError:
                    shutil.rmtree(entry.path, ignore_errors=True)
                except OSError:  # it is being made, or removed
                    continue


@contextlib.contextmanager
def traced(
    run: RunFolder,
    attempt: int,
    facts: RankFacts,
    command: list[str] | None = None,
    enabled: bool = True,
    own: OwnRequests | None = None,
    memory: MemoryRequests | None = None,
) -> Iterator[None]:
    """Lets `slurmopt profile`, and `own`, trace this process, or the processes of `command`, during the block. Without
    that the training runs as well."""
    tracing = _start(run, attempt, facts, command, own, memory) if enabled and not _has_profiler(command) else None
    try:
        yield
    finally:
        if tracing is not None:
            tracing.close()


def _has_profiler(command: list[str] | None) -> bool:
    """Whether another profiler traces this process, or is what the command starts."""
    return NSYS in os.environ or any(os.path.basename(word) in _PROFILERS for word in command or ())


def _start(
    run: RunFolder,
    attempt: int,
    facts: RankFacts,
    command: list[str] | None,
    own: OwnRequests | None,
    memory: MemoryRequests | None,
) -> Tracing | None:
    askers = Askers(facts.rank) if command is not None else OneProcess(facts.rank)
    try:
        tracing = Tracing(run, attempt, facts.node, askers, own, memory)
    except OSError as error:
        log.warning(f"slurmopt profile cannot trace rank {facts.rank}: {error}")
        return None
    os.environ.update(kineto.variables(tracing.folder, os.environ))
    return tracing
