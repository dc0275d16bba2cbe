"""Finds out which disk or quota is full, and whether a node is at fault."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path

from slurmopt.run_folder.files import replace_bytes
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.open_folders import held

_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
_WORDS = tuple(os.strerror(number).lower() for number in _ERRNOS)
_PROBE = 8192
"""Bytes: what a log and a heartbeat need to begin."""
_LITTLE = 1 << 20
"""Bytes: a file system with fewer free ones counts as full, for an error that names no file."""


def is_full(error: BaseException) -> bool:
    """Whether it says that a disk or a quota is full."""
    return (isinstance(error, OSError) and error.errno in _ERRNOS) or is_told(str(error))


def is_told(text: str) -> bool:
    """Whether a text says that a disk or a quota is full."""
    return any(words in text.lower() for words in _WORDS)


def cannot_write(folder: RunFolder) -> str | None:
    """Why nothing can be written into the run folder, such as "No space left on device: cannot write into FOLDER".

    What is full keeps ranks from starting, from leaving their last word, and their logs from saying so.
    """
    probe = folder.logs / ".probe"
    try:
        replace_bytes(probe, bytes(_PROBE))
    except OSError as error:
        return f"{error.strerror}: cannot write into {folder.logs}"
    finally:
        with contextlib.suppress(OSError):  # of a file system that is read-only or gone
            held(probe).unlink(missing_ok=True)
    return None


def filled(folder: RunFolder) -> str | None:
    """`cannot_write`, where that is for want of space."""
    why = cannot_write(folder)
    return why if why is not None and is_told(why) else None


def places(error: BaseException) -> list[str]:
    """Which disks are full, where `error` says that one is: the file that it names, else what is full of the working
    directory, the run folder and the folders for temporary files. [] where nothing tells, as of a quota."""
    if isinstance(error, OSError) and isinstance(error.filename, (str, bytes)):
        return [os.fsdecode(error.filename)]
    temporary = [os.environ.get("TMPDIR") or "/tmp", "/dev/shm"]  # noqa: S108 - nothing is written there
    return [place for place in dict.fromkeys([*_shared(), *temporary]) if _has_little(place)]


def is_shared(full: Iterable[str]) -> bool:
    """Whether the disk of one of these is that of the run folder or of the working directory: of such a disk no node
    is at fault."""
    shared = {_device(place) for place in _shared()} - {None}
    return any(_device(place) in shared for place in full)


def _shared() -> list[str]:
    folders = [os.environ.get("SLURMOPT_RUN_FOLDER")]
    with contextlib.suppress(OSError):  # it was removed
        folders.append(os.getcwd())
    return list(filter(None, folders))


def _has_little(place: str) -> bool:
    try:
        usage = os.statvfs(place)
    except OSError:
        return False
    is_read_only = bool(usage.f_flag & os.ST_RDONLY)  # such as squashfs, which has no free bytes
    return not is_read_only and usage.f_blocks > 0 and usage.f_bavail * usage.f_frsize < _LITTLE


def _device(place: str) -> int | None:
    """Of the folder that `place` lies in: a file that could not be made is not there."""
    for each in (Path(place), *Path(place).parents):
        try:
            return each.stat().st_dev
        except OSError:
            continue
    return None
