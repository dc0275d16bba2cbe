"""The secret that the processes of one attempt share: a file in the run folder that only its owner can read.

The batch shell makes it before the ranks start, so that no rank looks for a file that is not there yet: NFS would
remember that for seconds. Where it is missing, the first process that wants it makes it. Rank 0 appends the address at
which it listens: a file that is opened anew shows what was appended, on NFS too.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from slurmopt.errors import RendezvousError
from slurmopt.run_folder.access.files import open_held
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import RunFolder

_BYTES = 32
_LARGEST = 4096


def attempt_secret(folder: RunFolder, attempt: int) -> bytes:
    """The secret of an attempt; creates it if there is none. RendezvousError if the file belongs to another user,
    OSError if the folder cannot be read or written."""
    path = folder.rendezvous(attempt)
    if (lines := _lines(path)) is None:
        _make(path)
        lines = _lines(path)
    try:
        secret = bytes.fromhex("".join((lines or [""])[0].split()))
    except ValueError:
        secret = b""
    if len(secret) != _BYTES:
        raise RendezvousError(f"{path} does not begin with the attempt's secret: 64 hexadecimal digits in one line")
    return secret


def publish(folder: RunFolder, attempt: int, host: str, port: int) -> None:
    """Publishes the address at which rank 0 listens."""
    descriptor = open_held(folder.rendezvous(attempt), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.write(descriptor, f"{host} {port}\n".encode())
    finally:
        os.close(descriptor)


def published(folder: RunFolder, attempt: int) -> tuple[str, int] | None:
    """The address that rank 0 has published; None if it has not, or the file cannot be read now."""
    with contextlib.suppress(OSError, ValueError):
        lines = _lines(folder.rendezvous(attempt)) or []
        if len(lines) > 1:
            host, port = lines[-1].split()
            return host, int(port)
    return None


def _lines(path: Path) -> list[str] | None:
    """The complete lines of the file; None if there is no file."""
    try:
        descriptor = open_held(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        # Whom root's files belong to is the file server's to say: they are compared, not asked for.
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != held(path).parent.stat().st_uid:
            raise RendezvousError(f"{path} is not a file of the run's owner")
        text = file.read(_LARGEST).decode("ascii", errors="replace")
    return text.split("\n")[:-1]


def _make(path: Path) -> None:
    """Creates the file atomically, unless another process is quicker."""
    path = held(path)
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(os.urandom(_BYTES).hex() + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)
