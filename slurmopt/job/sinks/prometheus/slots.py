"""Files in a folder that several jobs of a node share, such as the one that node_exporter reads.

Two jobs that exposed the same series there would make node_exporter refuse all of them, and a file that a killed job
left behind would be read for ever. So each job claims the lowest free number, its slot, by a lock that the kernel
releases when the job's process ends. The slot is a label of each series. A job that starts removes all files of its
node that killed jobs of the same user have left, whatever their slots. The batch shell's verdict on an attempt removes
those that the attempt has left: `slurmopt.run_folder.exposed_files`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path

from slurmopt.job.sinks.record import SinkError
from slurmopt.run_folder.access.temporary import temporary_name
from slurmopt.run_folder.exposed_files import locked, remove_unheld
from slurmopt.run_folder.layout import folder_name

_MOST = 256
_READABLE = 0o644
"""Mode of the files: Prometheus and node_exporter run as other users."""


class SlotFile:
    """A file NAME-NODE-SLOT.ENDING that belongs to this process until `remove`."""

    def __init__(self, folder: Path, node: str, ending: str) -> None:
        """Claims a slot. Raises SinkError if the folder cannot be used."""
        self.slot, self._lock = _claimed(folder, folder_name(node))
        _remove_left(folder, folder_name(node), self.slot)
        self.path = folder / f"slurmopt-{folder_name(node)}-{self.slot}.{ending}"

    def replace(self, text: str) -> None:
        """Writes the file beside its place, and renames it. Raises SinkError."""
        temporary, data = temporary_name(self.path), text.encode("utf-8", "replace")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                os.fchmod(descriptor, _READABLE)
            os.replace(temporary, self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise SinkError(f"{self.path} cannot be written: {error.strerror}") from error

    def remove(self) -> None:
        """Removes the file and gives the slot back. Raises SinkError."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise SinkError(f"{self.path} cannot be removed: {error.strerror}") from error
        finally:
            os.close(self._lock)


def _claimed(folder: Path, node: str) -> tuple[int, int]:
    """The slot, and the descriptor that holds its lock."""
    for slot in range(_MOST):
        path = folder / f".slurmopt-{node}-{slot}.lock"
        try:
            return slot, locked(path, os.O_CREAT)
        except OSError as error:
            # EACCES: another user's; the folder itself must be writable, or all of them would be.
            if error.errno not in (errno.EAGAIN, errno.EACCES) or not os.access(folder, os.W_OK | os.X_OK):
                raise SinkError(f"{folder} cannot be used: {error.strerror}") from error
    raise SinkError(f"{folder} has {_MOST} jobs of this node already")


def _remove_left(folder: Path, node: str, own: int) -> None:
    """Removes the files of the other slots of this node that no process holds. Those of other users are left to them.
    Of other nodes as well: in a shared folder a lock may count on one node alone."""
    ours = re.compile(rf"slurmopt-{re.escape(node)}-([0-9]{{1,3}})\.(?:prom|json)")
    with contextlib.suppress(OSError):  # the job has its own file, which is what counts
        for name in os.listdir(folder):
            if (match := ours.fullmatch(name)) is not None and int(match[1]) != own:
                with contextlib.suppress(OSError):
                    remove_unheld(folder / name, folder / f".slurmopt-{node}-{match[1]}.lock")
