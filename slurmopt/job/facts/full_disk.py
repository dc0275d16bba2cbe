"""Finds out which disk or quota is full, and whether a node is at fault."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path

from slurmopt.run_folder.access.files import replace_bytes
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import RunFolder
from slurmopt.storage.filesystem.usage import usage_of

_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
_WORDS = tuple(os.strerror(number).lower() for number in _ERRNOS)
_PROBE = 8192
"""Bytes that a log and a heartbeat need to begin."""
_LITTLE = 1 << 20
"""A file system with fewer free bytes counts as full, for an error that names no file."""


def is_full(error: BaseException) -> bool:
    """Whether the error says that a disk or a quota is full."""
    return (isinstance(error, OSError) and error.errno in _ERRNOS) or is_told(str(error))


def is_told(text: str) -> bool:
    """Whether the text says that a disk or a quota is full."""
    return any(words in text.lower() for words in _WORDS)


def cannot_write(folder: RunFolder) -> str | None:
    """Why nothing can be written into the run folder, such as "No space left on device: cannot write into FOLDER".

    A full disk keeps ranks from starting, from writing their outcome, and from logging that.
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
    """As `cannot_write`, but None if the reason is not a lack of space."""
    why = cannot_write(folder)
    return why if why is not None and is_told(why) else None


def places(error: BaseException) -> list[str]:
    """The full places, for an `error` that says that a disk is full: the file that it names, else those of the working
    directory, the run folder and the folders for temporary files that are full. [] if unknown, as for a quota."""
    if isinstance(error, OSError) and isinstance(error.filename, (str, bytes)):
        return [os.fsdecode(error.filename)]
    temporary = [os.environ.get("TMPDIR") or "/tmp", "/dev/shm"]  # noqa: S108 - nothing is written there
    return [place for place in dict.fromkeys([*_shared(), *temporary]) if _has_little(place)]


def is_shared(full: Iterable[str]) -> bool:
    """Whether one of these is on the file system of the run folder or of the working directory. No node is at fault
    then."""
    shared = {_device(place) for place in _shared()} - {None}
    return any(_device(place) in shared for place in full)


def _shared() -> list[str]:
    folders = [os.environ.get("SLURMOPT_RUN_FOLDER")]
    with contextlib.suppress(OSError):  # it was removed
        folders.append(os.getcwd())
    return list(filter(None, folders))


def _has_little(place: str) -> bool:
    try:
        usage = usage_of(place)
    except OSError:
        return False
    # A read-only one, such as squashfs, has no free bytes.
    return not usage.is_read_only and usage.bytes > 0 and usage.free_bytes < _LITTLE


def _device(place: str) -> int | None:
    """The device of the folder of `place`; a file that could not be made does not exist."""
    for each in (Path(place), *Path(place).parents):
        try:
            return each.stat().st_dev
        except OSError:
            continue
    return None
