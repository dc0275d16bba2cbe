"""A claim by a file that only one can make: where locks hold on one node alone, or are not there at all.

Array tasks on many nodes look for room at the same moment. O_CREAT with O_EXCL is one step on NFS and Lustre too.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from slurmopt.errors import RunError
from slurmopt.folder.files import read_json
from slurmopt.folder.process import started_at

_STALE = 180.0
"""Seconds after which a claim from another node is a dead one's: sbatch is given up sooner."""


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Holds the claim `path` during the block. RunError where another has it."""
    _claim(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _claim(path: Path) -> None:
    mine = {"host": socket.gethostname(), "pid": os.getpid(), "pid_started": started_at(os.getpid())}
    for _ in range(2):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if _is_held(path):
                raise RunError(f"{path} says that another submits the same points just now") from None
            path.unlink(missing_ok=True)
            continue
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({**mine, "time": time.time()}, file)
        return
    raise RunError(f"{path} cannot be made: another makes it again and again")


def _is_held(path: Path) -> bool:
    holder = read_json(path) or {}
    pid = holder.get("pid")
    if holder.get("host") == socket.gethostname() and isinstance(pid, int):
        return holder.get("pid_started") is not None and holder["pid_started"] == started_at(pid)
    try:
        return time.time() - path.stat().st_mtime < _STALE
    except FileNotFoundError:
        return False
