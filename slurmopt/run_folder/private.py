"""Refuses files and folders that another user may write to, before anything in them is trusted."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from slurmopt.errors import JobError
from slurmopt.run_folder.access.files import open_held
from slurmopt.run_folder.access.open_folders import held, hold, hold_as_told, release
from slurmopt.run_folder.access.owner import is_open, is_trusted
from slurmopt.run_folder.layout import RunFolder


@contextlib.contextmanager
def written_by_nobody_else() -> Iterator[None]:
    """Files that this process makes in the block are not writable for group and others, whatever the umask."""
    before = os.umask(0o077)
    os.umask(before | 0o022)
    try:
        yield
    finally:
        os.umask(before)


def hold_run(run: RunFolder) -> None:
    """Keeps the run's folder open in this process, or that of its sweep; see `slurmopt.run_folder.access.open_folders`.

    JobError if that folder or the run belongs to another user, or if others may write to it."""
    if hold_as_told():
        return
    place = run.top
    if not hold(place):
        return
    try:
        for path in (place, run.path):
            refuse_foreign_folder(path)
        refuse_open_folder(place)
    except JobError:
        release(place)
        raise


def refuse_foreign_folder(path: Path) -> None:
    """Raises JobError if the folder or file, or a link in its place, belongs neither to this user nor to root, because
    its content is executed. Does nothing if it does not exist yet.
    """
    here = held(path)
    for facts in (path.lstat(), path.stat(), here.stat()) if os.path.lexists(path) and here.exists() else ():
        if not is_trusted(facts, here if here.is_dir() else here.parent):
            raise JobError(f"{path} belongs to user {facts.st_uid}, not to you ({os.geteuid()}); nothing there is run")


def refuse_open_folder(path: Path) -> None:
    """Raises JobError if others may write to a run or sweep folder of this user. slurmopt never makes such a folder, so
    somebody else may have filled it. Does nothing if the file system has no modes.
    """
    here = held(path)
    if here.exists() and is_open(facts := here.stat(), here):
        mode = stat.S_IMODE(facts.st_mode)
        raise JobError(f"{path} may be written by others (mode {mode:o}); nothing there is run")


def read(path: Path, place: int = 0, size: int = -1) -> bytes:
    """All bytes of a file, or `size` bytes from offset `place`. Raises JobError if anybody else than this user and root
    can have written it."""
    descriptor = open_held(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        refuse_strangers(path, descriptor)
        file.seek(place)
        return file.read(size)


def refuse_strangers(path: Path, descriptor: int) -> None:
    """Raises JobError if the open file is not regular, or if others can have written to it or to its folder."""
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        raise JobError(f"{path} is not a regular file; it is not read")
    folder = held(path).parent
    _refuse(path, facts, folder)
    _refuse(path.parent, folder.stat(), folder)


def _refuse(path: Path, facts: os.stat_result, folder: Path) -> None:
    if not is_trusted(facts, folder):
        raise JobError(f"{path} belongs to user {facts.st_uid}, not to you ({os.geteuid()}); it is not read")
    if is_open(facts, folder):
        raise JobError(f"{path} can be written by others (mode {facts.st_mode & 0o777:o}); it is not read")


if __name__ == "__main__":  # as the job script asks
    try:
        {"owner": refuse_foreign_folder, "mode": refuse_open_folder}[sys.argv[1]](Path(sys.argv[2]))
    except (JobError, OSError) as error:
        sys.exit(str(error))
