"""The protocol by which Kineto, the profiler in torch, is told to write a trace of a program that runs.

With KINETO_USE_DAEMON in the environment when torch is imported, a thread of Kineto asks every five seconds, at the
Unix datagram socket `dynolog`, whether there is something to do. A packet is a u64 (bytes of the body), 32 characters
(its kind) and the body, in the byte order of the machine:

    ctxt    i32 gpu, i32 pid, i64 job: a CUDA context was made; the answer is an i32
    req     i32 kinds, i32 n, i64 job, i32 pids[n]: the process and its ancestors; the answer is the text of a
            configuration, empty if there is nothing to do

Source: `ipcfabric` and `IpcFabricConfigClient.cpp` in github.com/pytorch/kineto.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOCKET = "dynolog"
ASKS_EVERY = 5.0
"""Seconds between two questions of a process; it is fixed in Kineto."""
WARM_UP = 3
"""Seconds for which the profiler runs before it records."""
LEAST_NOTICE = WARM_UP + 2.0
"""Seconds that a process needs to know of a trace before it begins: it looks once a second whether the warm-up is
due."""
PATH_ROOM = 54
"""Bytes that the path of the socket's folder may have: Kineto binds sockets of its own there, of 53 characters, and the
kernel takes 107."""
_DAEMON, _PLACE, _LOG_LEVEL = "KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR", "KINETO_LOG_LEVEL"
_SILENT = "5"
"""Else each process warns that it has a daemon, and reports an error once that is gone."""
_HEAD = struct.Struct("=Q32s")
_REQUEST = struct.Struct("=iiq")
_TRACES = 2
"""The bit of `kinds` by which a process says that its profiler is free to write a trace."""
_MOST_PIDS = 1024


@dataclass(frozen=True)
class Question:
    """What a process asks. `pids`: its own id, then those of its ancestors, in its own PID namespace; empty for a
    question about something else than a configuration. `is_free`: no other trace of it is being made."""

    kind: bytes
    pids: tuple[int, ...] = ()
    is_free: bool = False


def variables(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables for a process that imports torch, to ask in `folder`; none where the user has set up a daemon of
    their own."""
    if _DAEMON in environ or _PLACE in environ:
        return {}
    return {_DAEMON: "1", _PLACE: str(folder)} | ({} if _LOG_LEVEL in environ else {_LOG_LEVEL: _SILENT})


def question(data: bytes) -> Question | None:
    """Reads a packet; None if it is none of Kineto's."""
    if len(data) < _HEAD.size:
        return None
    size, kind = _HEAD.unpack_from(data)
    body, kind = data[_HEAD.size :], kind.rstrip(b"\0")
    if size != len(body) or kind != b"req":
        return Question(kind) if kind == b"ctxt" and size == len(body) else None
    if len(body) < _REQUEST.size:
        return None
    kinds, count, _ = _REQUEST.unpack_from(body)
    if not 0 < count <= _MOST_PIDS or len(body) < _REQUEST.size + 4 * count:
        return None
    return Question(kind, struct.unpack_from(f"={count}i", body, _REQUEST.size), bool(kinds & _TRACES))


def answer(asked: Question, configuration: str = "") -> bytes:
    """The packet that answers a question."""
    body = configuration.encode() if asked.kind == b"req" else struct.pack("=i", 1)
    return _HEAD.pack(len(body), asked.kind) + body


def configuration(path: Path, start: float, seconds: float, shapes: bool) -> str:
    """Has a process record from `start` (seconds since the epoch) for `seconds`, and write `trace_file(path, pid)`,
    with `shapes` of the inputs of operators. A number of iterations would not do: most processes do not count them."""
    lines = {
        "ACTIVITIES_LOG_FILE": path,
        "PROFILE_START_TIME": round(start * 1000),
        "ACTIVITIES_DURATION_MSECS": max(1, round(seconds * 1000)),
        "ACTIVITIES_WARMUP_PERIOD_SECS": WARM_UP,
        **({"PROFILE_REPORT_INPUT_SHAPES": "true"} if shapes else {}),
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def trace_file(path: Path, pid: int) -> Path:
    """Where the trace of a process is, once it is complete, for a configuration with `path`."""
    return path.with_name(f"{path.stem}_{pid}{path.suffix}")


def is_complete(path: Path) -> bool:
    """Whether the file ends as a whole trace does."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            tail = file.read()
    except FileNotFoundError:
        return False
    return b'"traceName"' in tail and tail.rstrip().endswith(b"}")


_TAIL = 4096
